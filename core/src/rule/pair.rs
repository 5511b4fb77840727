//! What a rule says of prefill and decode on different endpoints. Owns the typed members (`pd_disagg_mode`, `ep_role`
//! and what belongs to them); must never hold a pair of roles in which one is missing.

use crate::fleet::Excluded;

/// A rule whose requests are served by two endpoints each (`pd_disagg_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disaggregation {
    /// `pdBootstrapPort`: where SGLang's decode engine, or one of vLLM with Mooncake, meets the prefill engine; means
    /// nothing for others.
    pub bootstrap_port: u16,
    /// `pd_connector`: by which means vLLM transfers.
    pub connector: PairConnector,
}

/// `pd_connector`, vLLM's `kv_connector` as far as a caller must know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PairConnector {
    /// Prefill's answer says where its blocks are.
    #[default]
    Nixl,
    /// Both legs carry one `transfer_id`, and decode is told the prefill engine's `engine_id`.
    Mooncake,
}

impl PairConnector {
    /// Its word in a rule.
    pub fn word(self) -> &'static str {
        match self {
            PairConnector::Nixl => "nixl",
            PairConnector::Mooncake => "mooncake",
        }
    }
}

/// Where prefill engines are met unless a rule says otherwise.
pub const BOOTSTRAP_PORT: u16 = 8998;

/// `ep_role`: what an endpoint does of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// 0: all of it.
    #[default]
    Normal,
    /// 1: it computes the prompt.
    Prefill,
    /// 2: it produces the tokens.
    Decode,
    /// 3: it encodes images and other media, for prefill.
    Encode,
}

impl Role {
    /// All of them, in the order of their numbers.
    pub const ALL: [Role; 4] = [Role::Normal, Role::Prefill, Role::Decode, Role::Encode];

    /// By the number of a rule's `ep_role`.
    pub fn from_number(number: i64) -> Role {
        usize::try_from(number).ok().and_then(|at| Role::ALL.get(at).copied()).unwrap_or_default()
    }
}

/// The endpoints of a rule by role, as what a choice among one of them leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    others: [Excluded; Role::ALL.len()],
    encodes: bool,
}

impl Roles {
    /// Those of endpoints in their order.
    pub fn new(roles: impl Iterator<Item = Role>) -> Roles {
        let mut all = Roles::default();
        for (index, role) in roles.enumerate() {
            all.encodes |= role == Role::Encode;
            for other in Role::ALL.into_iter().filter(|other| *other != role) {
                all.others[other as usize].add(index);
            }
        }
        all
    }

    /// Whether there are encoders.
    pub fn encodes(&self) -> bool {
        self.encodes
    }

    /// All endpoints but those of `role`.
    pub fn all_but(&self, role: Role) -> Excluded {
        self.others[role as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_of_a_role_leaves_out_all_others() {
        let given = [Role::Prefill, Role::Decode, Role::Normal, Role::Prefill, Role::Encode];
        let roles = Roles::new(given.into_iter());
        for role in Role::ALL {
            for (index, own) in given.into_iter().enumerate() {
                assert_eq!(roles.all_but(role).contains(index), own != role, "{role:?} {index}");
            }
            assert!(!roles.all_but(role).contains(given.len()));
        }
        assert!(roles.encodes() && !Roles::new(given[..4].iter().copied()).encodes());
    }

    #[test]
    fn roles_have_the_numbers_of_a_body() {
        assert_eq!([0, 1, 2, 3].map(Role::from_number), Role::ALL);
        assert_eq!(Role::ALL.map(|role| role as usize), [0, 1, 2, 3]);
    }
}
