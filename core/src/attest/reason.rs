//! The words that `kvexactstatus` says a rule's state and its reasons by, as the loxilb AI gateway has them. Owns the
//! closed lists and one cure for each reason; must never decide which of them holds.

/// How far a rule with exact routing is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// No profile is bound: exact routing works by the rule's own word.
    LegacyActiveUnattested,
    /// A rule of an older store without a profile, which has to be given one before it routes by blocks.
    RequiresMigration,
    /// Not all shards have taken over the table with this binding.
    PendingDataplaneContract,
    /// What the shards were told is not what they have.
    EnforcementFault,
    /// It was ready, and what took that away is not in force everywhere yet.
    Degrading,
    /// It was ready, and is not any more.
    Degraded,
    /// The profile is published and fits the rule; of the engines nothing is proven.
    ProfileValidated,
    /// The engines are what the manifest says and tokenize as the profile does.
    TokenParityVerified,
    /// The same where the engine has no way to ask for tokens: the gateway's own are those of the fixtures.
    TokenParityNotAvailableWithApprovedOracle,
    /// The engines named the blocks of a fresh prompt as was computed here.
    EngineHashAttested,
    /// All of it, without a manifest, as the operator allowed.
    ReadyFunctionalOnly,
    /// All of it: routes by blocks.
    Ready,
}

impl State {
    /// All of them.
    pub const ALL: [State; 12] = [
        State::LegacyActiveUnattested,
        State::RequiresMigration,
        State::PendingDataplaneContract,
        State::EnforcementFault,
        State::Degrading,
        State::Degraded,
        State::ProfileValidated,
        State::TokenParityVerified,
        State::TokenParityNotAvailableWithApprovedOracle,
        State::EngineHashAttested,
        State::ReadyFunctionalOnly,
        State::Ready,
    ];

    /// As in `kvexactstatus` and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            State::LegacyActiveUnattested => "LEGACY_ACTIVE_UNATTESTED",
            State::RequiresMigration => "REQUIRES_MIGRATION",
            State::PendingDataplaneContract => "PENDING_DATAPLANE_CONTRACT",
            State::EnforcementFault => "ENFORCEMENT_FAULT",
            State::Degrading => "DEGRADING",
            State::Degraded => "DEGRADED",
            State::ProfileValidated => "PROFILE_VALIDATED",
            State::TokenParityVerified => "TOKEN_PARITY_VERIFIED",
            State::TokenParityNotAvailableWithApprovedOracle => {
                "TOKEN_PARITY_NOT_AVAILABLE_WITH_APPROVED_ORACLE"
            }
            State::EngineHashAttested => "ENGINE_HASH_ATTESTED",
            State::ReadyFunctionalOnly => "READY_FUNCTIONAL_ONLY",
            State::Ready => "READY",
        }
    }

    /// Whether requests go by blocks.
    pub const fn is_ready(self) -> bool {
        matches!(self, State::Ready | State::ReadyFunctionalOnly)
    }
}

/// The reasons, one line each: name, word, cure.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $word:literal $cure:literal),+ $(,)?) => {
        /// Why a rule, an endpoint or a rank is not ready.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$doc])* $name,)+
        }

        impl Reason {
            /// All, as their discriminants go.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),+];

            /// As in `kvexactstatus`, receipts and explanations.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Reason::$name => $word,)+
                }
            }

            /// What to do about it, in a clause.
            pub const fn cure(self) -> &'static str {
                match self {
                    $(Reason::$name => $cure,)+
                }
            }
        }
    };
}

reasons! {
    /// The engine has no events that could prove anything.
    AdapterUnavailable "adapter_unavailable" "use an engine that publishes cache events, with its events on",
    /// Waiting for answers of an engine that has much to do, or that was not asked yet.
    AttestationPending "attestation_pending" "wait; the engine has requests waiting, or is being asked",
    /// Nothing was proven for twice as long as it should have been.
    AttestationStale "attestation_stale" "see that the engine answers in time",
    /// The shards have not taken over the binding yet.
    BindingDataplanePending "binding_dataplane_pending" "wait for all shards to take over the rule",
    /// It is time to prove it anew.
    ChallengeCadence "challenge_cadence" "wait; the proof is being renewed",
    /// The blocks of a challenge came under other names, or with more than their tokens.
    ChallengeFailed "challenge_failed" "compare seed, hash and block size of rule and engine (`warmpath doctor`)",
    /// The blocks of a challenge never came.
    ChallengeTimeout "challenge_timeout" "see that the engine's cache events reach the gateway (`warmpath ctl kv`)",
    /// Another reader took events of a drained stream.
    DrainOwnershipLost "drain_ownership_lost" "stop the other reader, then `warmpath ctl kv reacquire`",
    /// Events of a drained stream are missing.
    DrainSequenceGap "drain_sequence_gap" "raise event_buffer_max_size, and see that nobody else reads the events",
    /// The engine does not answer.
    EndpointUnreachable "endpoint_unreachable" "start the engine, or take it out of the rule",
    /// What the shards were told is not what they have.
    EnforcementFault "enforcement_fault" "apply the rule anew",
    /// Blocks, ranks, ports, hash or types of the engine are not those of the rule and manifest.
    EngineGeometryMismatch "engine_geometry_mismatch" "start the engine with the rule's block size, ranks, port and hash",
    /// Its names of blocks are not proven yet.
    HashAttestationPending "hash_attestation_pending" "wait; the engine is being challenged",
    /// Version, revision or model of the engine are not those of the manifest and rule.
    IdentityMismatch "identity_mismatch" "run the engine version and model revision of the manifest",
    /// The manifest's bytes changed.
    ManifestChanged "manifest_changed" "wait; everything is proven anew",
    /// There is no manifest of the profile.
    ManifestMissing "manifest_missing" "put manifests/PROFILE.yaml into the registry",
    /// The rule has no endpoint whose blocks could be known.
    NoEndpoints "no_endpoints" "give the rule endpoints",
    /// No profile is bound.
    NoModelProfileBound "no_model_profile_bound" "set kvModelProfile to have the rule attested",
    /// A fixture's request has other bytes than its expectation was made of.
    ProbeFixtureDrift "probe_fixture_drift" "make the fixtures anew",
    /// There are no fixtures of the profile for this engine.
    ProbeFixturesMissing "probe_fixtures_missing" "put probefixtures/PROFILE into the registry",
    /// An answer of the engine is not of the form that its version has.
    ProbeSchemaMismatch "probe_schema_mismatch" "see that the endpoint is the engine itself, in a version of the catalog",
    /// The registry of profiles can't be read.
    ProfileRegistryUnavailable "profile_registry_unavailable" "see why profiles are refused (`warmpath ctl models`)",
    /// The profile that the rule names is not published any more.
    ProfileResolutionFault "profile_resolution_fault" "publish the profile again, or bind another one",
    /// The rule comes from a store without profiles.
    RestoredProfileLessRequiresMigration "restored_profile_less_requires_migration" "replace the rule by one with a kvModelProfile of its model",
    /// What the engine's events say of it can't be true.
    RuntimeFault "runtime_fault" "see the findings of `warmpath ctl kv`",
    /// The engine's tokens are not those expected.
    TokenMismatch "token_mismatch" "start the engine with the profile's revision, tokenizer and template",
}

impl Reason {
    /// By its discriminant.
    pub fn of(place: u8) -> Option<Reason> {
        Reason::ALL.get(usize::from(place)).copied()
    }
}

/// Why what was ordered is not in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EnforcementFault {
    /// The shards have no such binding.
    NoDataplaneSetter,
    /// The endpoint is not one of the binding that they have.
    BindingStateMissing,
    /// Nothing was written.
    DataplaneSetterFailed,
    /// What is read back is not what was written.
    DataplaneAckMismatch,
    /// The rule was replaced meanwhile.
    BindingChangedDuringInstall,
}

impl EnforcementFault {
    /// All of them.
    pub const ALL: [EnforcementFault; 5] = [
        EnforcementFault::NoDataplaneSetter,
        EnforcementFault::BindingStateMissing,
        EnforcementFault::DataplaneSetterFailed,
        EnforcementFault::DataplaneAckMismatch,
        EnforcementFault::BindingChangedDuringInstall,
    ];

    /// As in `enforcement.fault`.
    pub const fn word(self) -> &'static str {
        match self {
            EnforcementFault::NoDataplaneSetter => "no_dataplane_setter",
            EnforcementFault::BindingStateMissing => "binding_state_missing",
            EnforcementFault::DataplaneSetterFailed => "dataplane_setter_failed",
            EnforcementFault::DataplaneAckMismatch => "dataplane_ack_mismatch",
            EnforcementFault::BindingChangedDuringInstall => "binding_changed_during_install",
        }
    }
}
