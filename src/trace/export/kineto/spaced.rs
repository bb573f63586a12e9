//! JSON as analysers want it.

use std::io::{self, Write};

use serde::Serialize;

/// JSON on one line with a space after each colon and comma.
pub(super) fn spaced(value: &impl Serialize) -> io::Result<String> {
    struct Spaced;
    impl serde_json::ser::Formatter for Spaced {
        fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
            writer.write_all(b": ")
        }
        fn begin_object_key<W: ?Sized + Write>(
            &mut self,
            writer: &mut W,
            first: bool,
        ) -> io::Result<()> {
            writer.write_all(if first { b"" } else { b", " })
        }
        fn begin_array_value<W: ?Sized + Write>(
            &mut self,
            writer: &mut W,
            first: bool,
        ) -> io::Result<()> {
            writer.write_all(if first { b"" } else { b", " })
        }
    }
    let mut bytes = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Spaced))?;
    String::from_utf8(bytes).map_err(io::Error::other)
}
