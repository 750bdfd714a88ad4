//! Reads an encoded message field by field, in place: nothing is copied, and unused fields are not decoded. A decoder of
//! whole messages allocates tens of bytes for an empty submessage of two.

use crate::request::RequestError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The fields that are left of a message.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) wire: WireType,
    /// Without the length, where it has one.
    pub(crate) value: &'a [u8],
}

/// The number that no field has.
pub(crate) const NO_FIELD: u32 = 0;
/// The fields of each entry of a map.
pub(crate) const KEY: u32 = 1;
pub(crate) const VALUE: u32 = 2;

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// How many bytes of the message are left.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, RequestError> {
        self.next_with_map(NO_FIELD)
    }

    /// The same of a message that has a map in this field. The decoder would read a map of any wire type as if it were one,
    /// and find other fields behind it than there are.
    #[inline]
    pub(crate) fn next_with_map(&mut self, map: u32) -> Result<Option<Field<'a>>, RequestError> {
        let rest = &mut self.0;
        if rest.is_empty() {
            return Ok(None);
        }
        let (number, wire) = decode_key(rest)?;
        if number == map && wire != WireType::LengthDelimited {
            return Err(wrong_type());
        }
        let value = if wire == WireType::LengthDelimited {
            let length = decode_varint(rest)?;
            let value = usize::try_from(length).ok().and_then(|it| rest.split_off(..it));
            value.ok_or_else(|| malformed("it is cut off"))?
        } else {
            let before = *rest;
            // Groups are skipped to the depth that the decoder allows.
            skip_field(wire, number, rest, DecodeContext::default())?;
            &before[..before.len() - rest.len()]
        };
        Ok(Some(Field { number, wire, value }))
    }
}

impl<'a> Field<'a> {
    #[inline]
    pub(crate) fn expect(self, wire: WireType) -> Result<Self, RequestError> {
        match self.wire == wire {
            true => Ok(self),
            false => Err(wrong_type()),
        }
    }

    pub(crate) fn message(self) -> Result<Fields<'a>, RequestError> {
        Ok(Fields(self.expect(WireType::LengthDelimited)?.value))
    }

    pub(crate) fn text(self) -> Result<&'a str, RequestError> {
        let value = self.expect(WireType::LengthDelimited)?.value;
        std::str::from_utf8(value).map_err(|_| malformed("a text of it is not UTF-8"))
    }

    /// As the decoder has it: the upper half of a larger one is lost.
    pub(crate) fn number(self) -> Result<u32, RequestError> {
        let mut value = self.expect(WireType::Varint)?.value;
        Ok(decode_varint(&mut value)? as u32)
    }
}

/// The key of an entry of a map. All maps have the same: the last one counts, and one that is left out is empty.
pub(crate) fn key_of(mut entry: Fields<'_>) -> Result<&str, RequestError> {
    let mut key = "";
    while let Some(field) = entry.next()? {
        if field.number == KEY {
            key = field.text()?;
        }
    }
    Ok(key)
}

fn wrong_type() -> RequestError {
    malformed("a field of it has the type of another")
}

pub(crate) fn malformed(reason: &str) -> RequestError {
    RequestError::Malformed(reason.to_owned())
}
