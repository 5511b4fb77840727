//! One member of an event at a time. Owns names, array positions and types; must never see a whole event.

use super::{Decoder, Open, Reject};
use crate::msgpack::Item;
use crate::wire::{ExtraKey, HashBytes, Locality, Medium, Run, SpecKind, Stored, Tokens};

/// The members that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Hashes,
    Parent,
    Tokens,
    BlockSize,
    LoraId,
    Medium,
    LoraName,
    ExtraKeys,
    Group,
    Kind,
    Window,
    Locality,
    Ownership,
    Session,
    Salt,
    Lookahead,
}

/// `BlockStored` as an array, after its kind (vLLM 0.23; SGLang 0.5.19 ends at the medium, or adds a map of
/// what vLLM has not).
pub(super) const STORED: &[Field] = &[
    Field::Hashes,
    Field::Parent,
    Field::Tokens,
    Field::BlockSize,
    Field::LoraId,
    Field::Medium,
    Field::LoraName,
    Field::ExtraKeys,
    Field::Group,
    Field::Kind,
    Field::Window,
];

/// `BlockRemoved` as an array, after its kind.
pub(super) const REMOVED: &[Field] = &[Field::Hashes, Field::Medium, Field::Group];

impl Field {
    pub(super) fn named(key: &[u8]) -> Option<Field> {
        Some(match key {
            b"block_hashes" => Field::Hashes,
            b"parent_block_hash" => Field::Parent,
            b"token_ids" => Field::Tokens,
            b"block_size" => Field::BlockSize,
            b"lora_id" => Field::LoraId,
            b"medium" => Field::Medium,
            b"lora_name" => Field::LoraName,
            b"extra_keys" => Field::ExtraKeys,
            b"group_idx" => Field::Group,
            b"kv_cache_spec_kind" => Field::Kind,
            b"kv_cache_spec_sliding_window" => Field::Window,
            b"locality" => Field::Locality,
            b"ownership" => Field::Ownership,
            b"session_id" => Field::Session,
            b"cache_salt" => Field::Salt,
            b"lookahead_token_ids" => Field::Lookahead,
            _ => return None,
        })
    }
}

/// A list of hashes or token ids, which alone may be long: what of it is read.
pub(super) struct List {
    field: Field,
    /// Where it begins in its pool.
    from: usize,
    left: u32,
    read: u32,
    /// Of token ids: whether they come in pairs, and whether all of them could be kept.
    pairs: bool,
    kept: bool,
}

/// Items of a list between two looks at whether it is to pause.
const PIECE: u32 = 1 << 12;

impl<'a> Decoder<'a, '_> {
    /// A list that may be left in its midst.
    pub(super) fn list(&mut self, field: Field, open: &mut Open) -> Result<(), Reject> {
        let begun = if field == Field::Hashes { Some(self.begin_hashes()?) } else { self.begin_tokens()? };
        match begun {
            Some(list) => self.go_on(list, open),
            None => Ok(()),
        }
    }

    /// Reads on, up to the list's end or a pause.
    pub(super) fn go_on(&mut self, mut list: List, open: &mut Open) -> Result<(), Reject> {
        while list.left > 0 {
            if self.is_due() {
                open.list = Some(list);
                return Ok(());
            }
            self.piece(&mut list, PIECE)?;
        }
        match list.field {
            Field::Hashes => open.draft.hashes = Run::between(list.from, self.batch.hashes.len()),
            _ => open.draft.tokens = self.tokens_of(&list),
        }
        Ok(())
    }

    fn piece(&mut self, list: &mut List, most: u32) -> Result<(), Reject> {
        let count = list.left.min(most);
        list.left -= count;
        if list.field == Field::Hashes { self.some_hashes(count) } else { self.some_tokens(count, list) }
    }

    pub(super) fn field(&mut self, field: Field, draft: &mut Stored) -> Result<(), Reject> {
        match field {
            Field::Hashes => draft.hashes = self.hashes()?,
            Field::Parent => draft.parent = self.parent()?,
            Field::Tokens => draft.tokens = self.tokens()?,
            Field::BlockSize => draft.block_size = self.small("block_size")?.unwrap_or(0),
            Field::LoraId => draft.lora_id = self.number("lora_id")?,
            Field::Medium => draft.place.medium = self.known("medium", Medium::named, Medium::Other)?,
            Field::LoraName => self.lora_name(draft)?,
            Field::ExtraKeys => draft.extra = self.extra_keys()?,
            Field::Group => draft.place.group = self.small("group_idx")?,
            Field::Kind => {
                draft.kind = self.known("kv_cache_spec_kind", SpecKind::named, SpecKind::Unknown)?
            }
            Field::Window => draft.window = self.small("kv_cache_spec_sliding_window")?,
            Field::Locality => draft.place.locality = self.locality()?,
            Field::Ownership => draft.place.ownership = self.text("ownership")?,
            Field::Session => draft.session = self.text("session_id")?,
            Field::Salt => draft.salt = self.text("cache_salt")?,
            Field::Lookahead => draft.lookahead = self.lookahead()?,
        }
        Ok(())
    }

    fn hashes(&mut self) -> Result<Run, Reject> {
        let mut list = self.begin_hashes()?;
        self.piece(&mut list, u32::MAX)?;
        Ok(Run::between(list.from, self.batch.hashes.len()))
    }

    fn begin_hashes(&mut self) -> Result<List, Reject> {
        let Item::Array(left) = self.reader.item()? else { return Err(Reject::Member("block_hashes")) };
        let from = self.batch.hashes.len();
        self.batch.hashes.reserve(left as usize);
        Ok(List { field: Field::Hashes, from, left, read: 0, pairs: false, kept: true })
    }

    fn some_hashes(&mut self, count: u32) -> Result<(), Reject> {
        for _ in 0..count {
            let item = self.reader.item()?;
            let hash = self.hash(item)?;
            self.batch.hashes.push(hash);
        }
        Ok(())
    }

    fn parent(&mut self) -> Result<Option<u64>, Reject> {
        match self.reader.item()? {
            Item::Nil => Ok(None),
            item => self.hash(item).map(Some),
        }
    }

    /// Integers are taken bit for bit, whatever their sign.
    #[inline]
    fn hash(&self, item: Item<'_>) -> Result<u64, Reject> {
        match item {
            Item::Uint(hash) => Ok(hash),
            Item::Negative(hash) => Ok(hash.cast_unsigned()),
            Item::Bin(bytes) => {
                let word = match self.naming {
                    HashBytes::Last => bytes.last_chunk(),
                    HashBytes::First => bytes.first_chunk(),
                };
                word.map(|word| u64::from_be_bytes(*word)).ok_or(Reject::Hash)
            }
            _ => Err(Reject::Hash),
        }
    }

    fn tokens(&mut self) -> Result<Tokens, Reject> {
        let Some(mut list) = self.begin_tokens()? else { return Ok(Tokens::Absent) };
        self.piece(&mut list, u32::MAX)?;
        Ok(self.tokens_of(&list))
    }

    fn begin_tokens(&mut self) -> Result<Option<List>, Reject> {
        let left = match self.reader.item()? {
            Item::Nil => return Ok(None),
            Item::Array(left) => left,
            _ => return Err(Reject::Member("token_ids")),
        };
        let from = self.batch.tokens.len();
        self.batch.tokens.reserve(left as usize);
        Ok(Some(List { field: Field::Tokens, from, left, read: 0, pairs: false, kept: true }))
    }

    /// Ids, or SGLang's pairs of them.
    fn some_tokens(&mut self, count: u32, list: &mut List) -> Result<(), Reject> {
        let plain = if list.pairs { 0 } else { self.reader.u32s(count, &mut self.batch.tokens) };
        list.read += plain;
        for _ in plain..count {
            match self.reader.item()? {
                Item::Uint(id) => {
                    list.kept &= !list.pairs;
                    self.token(id, &mut list.kept);
                }
                Item::Array(2) => {
                    list.kept &= list.pairs || list.read == 0;
                    list.pairs = true;
                    self.pair(&mut list.kept)?;
                }
                Item::Negative(_) => list.kept = false,
                _ => return Err(Reject::Member("token_ids")),
            }
            list.read += 1;
        }
        Ok(())
    }

    /// Ids that are no u32 leave the event without tokens, not without meaning.
    fn tokens_of(&mut self, list: &List) -> Tokens {
        let run = Run::between(list.from, self.batch.tokens.len());
        match (list.kept, list.pairs) {
            (true, false) => Tokens::Single(run),
            (true, true) => Tokens::Pairs(run),
            (false, _) => {
                self.batch.tokens.truncate(list.from);
                Tokens::Unkept
            }
        }
    }

    #[inline]
    fn token(&mut self, id: u64, kept: &mut bool) {
        *kept &= u32::try_from(id).is_ok();
        self.batch.tokens.push(id as u32);
    }

    fn pair(&mut self, kept: &mut bool) -> Result<(), Reject> {
        for _ in 0..2 {
            match self.reader.item()? {
                Item::Uint(id) => self.token(id, kept),
                Item::Negative(_) => *kept = false,
                _ => return Err(Reject::Member("token_ids")),
            }
        }
        Ok(())
    }

    /// One list a block; kept if each has as many ids.
    fn lookahead(&mut self) -> Result<Tokens, Reject> {
        let blocks = match self.reader.item()? {
            Item::Nil => return Ok(Tokens::Absent),
            Item::Array(blocks) => blocks,
            _ => return Err(Reject::Member("lookahead_token_ids")),
        };
        let from = self.batch.tokens.len();
        let (mut kept, mut width) = (true, None);
        for _ in 0..blocks {
            let before = self.batch.tokens.len();
            kept &= matches!(self.tokens()?, Tokens::Single(_));
            let ids = self.batch.tokens.len() - before;
            kept &= *width.get_or_insert(ids) == ids;
        }
        if kept {
            return Ok(Tokens::Single(Run::between(from, self.batch.tokens.len())));
        }
        self.batch.tokens.truncate(from);
        Ok(Tokens::Unkept)
    }

    /// In an array, SGLang puts a map of further members where vLLM puts the adapter's name.
    fn lora_name(&mut self, draft: &mut Stored) -> Result<(), Reject> {
        match self.reader.item()? {
            Item::Nil => {}
            Item::Str(name) => draft.lora_name = Some(self.keep(name.as_bytes())),
            Item::Map(pairs) => {
                for _ in 0..pairs {
                    match self.label(Field::named)? {
                        Some(Field::LoraName) => draft.lora_name = self.text("lora_name")?,
                        Some(field) => self.field(field, draft)?,
                        None => self.reader.skip()?,
                    }
                }
            }
            _ => return Err(Reject::Member("lora_name")),
        }
        Ok(())
    }

    fn extra_keys(&mut self) -> Result<Run, Reject> {
        let blocks = match self.reader.item()? {
            Item::Nil => return Ok(Run::default()),
            Item::Array(blocks) => blocks,
            _ => return Err(Reject::Member("extra_keys")),
        };
        let from = self.batch.extras.len();
        let mut any = false;
        for _ in 0..blocks {
            let start = self.batch.keys.len();
            match self.reader.item()? {
                Item::Nil => {}
                Item::Array(keys) => (0..keys).try_for_each(|_| self.extra_key())?,
                _ => return Err(Reject::Member("extra_keys")),
            }
            let run = Run::between(start, self.batch.keys.len());
            any |= !run.is_empty();
            self.batch.extras.push(run);
        }
        if !any {
            self.batch.extras.truncate(from);
        }
        Ok(Run::between(from, self.batch.extras.len()))
    }

    fn extra_key(&mut self) -> Result<(), Reject> {
        let mut ahead = self.reader;
        let key = match ahead.item()? {
            Item::Str(text) => ExtraKey::Text(self.keep(text.as_bytes())),
            Item::Bin(bytes) => ExtraKey::Bytes(self.keep(bytes)),
            Item::Array(2) => match (ahead.item()?, whole(ahead.item()?)) {
                (Item::Str(id), Some(offset)) => ExtraKey::Media { id: self.keep(id.as_bytes()), offset },
                _ => ExtraKey::Other,
            },
            _ => ExtraKey::Other,
        };
        self.batch.keys.push(key);
        self.reader.skip()?;
        Ok(())
    }

    fn locality(&mut self) -> Result<Option<Locality>, Reject> {
        let named = |name: &[u8]| match name {
            b"LOCAL" => Some(Locality::Local),
            b"REMOTE" => Some(Locality::Remote),
            _ => None,
        };
        self.known("locality", named, Locality::Other)
    }

    /// A name among those that are known here, or `other`.
    #[inline]
    fn known<T>(
        &mut self,
        member: &'static str,
        named: impl Fn(&[u8]) -> Option<T>,
        other: T,
    ) -> Result<Option<T>, Reject> {
        let mut ahead = self.reader;
        if let Some(known) = ahead.name().and_then(&named) {
            self.reader = ahead;
            return Ok(Some(known));
        }
        Ok(self.name(member)?.map(|name| named(name.as_bytes()).unwrap_or(other)))
    }

    fn name(&mut self, member: &'static str) -> Result<Option<&'a str>, Reject> {
        match self.reader.item()? {
            Item::Nil => Ok(None),
            Item::Str(name) => Ok(Some(name)),
            _ => Err(Reject::Member(member)),
        }
    }

    fn text(&mut self, member: &'static str) -> Result<Option<Run>, Reject> {
        Ok(self.name(member)?.map(|text| self.keep(text.as_bytes())))
    }

    fn number(&mut self, member: &'static str) -> Result<Option<u64>, Reject> {
        match self.reader.item()? {
            Item::Nil => Ok(None),
            Item::Uint(number) => Ok(Some(number)),
            _ => Err(Reject::Member(member)),
        }
    }

    fn small(&mut self, member: &'static str) -> Result<Option<u32>, Reject> {
        let number = self.number(member)?;
        number.map(|number| u32::try_from(number).map_err(|_| Reject::Member(member))).transpose()
    }

    fn keep(&mut self, bytes: &[u8]) -> Run {
        let from = self.batch.bytes.len();
        self.batch.bytes.extend_from_slice(bytes);
        Run::between(from, self.batch.bytes.len())
    }
}

/// An integer of either sign.
fn whole(item: Item<'_>) -> Option<i64> {
    match item {
        Item::Uint(number) => i64::try_from(number).ok(),
        Item::Negative(number) => Some(number),
        _ => None,
    }
}
