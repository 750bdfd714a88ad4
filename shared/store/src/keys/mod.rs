//! The key ring: authenticates what is in the store, and seals the secrets in it.
//!
//! A program that can write Redis must not be able to forge a snapshot, and one that can read it must not learn a
//! private key. Both rest on one small file that only the programs have. [`KeyRing::generate`] makes it:
//!
//! ```yaml
//! # Authenticates heads and hides the versions of secrets. It does not rotate.
//! root: <32 bytes in base64>
//! # The first seals, all open.
//! seal:
//!   - id: "2026-11"            # 1 to 32 of A-Z a-z 0-9 . _ -
//!     key: <32 bytes in base64>
//! ```
//!
//! With `seal: []` a program authenticates, and can neither open nor seal secrets.
//!
//! No key is used as it is: each purpose has a key of its own, derived under a context that names the purpose and
//! its version. Equal secrets in the same place are sealed to equal bytes, so two leaders agree; the nonce is a keyed
//! hash of all that is sealed, so no two different messages share one.
//!
//! No error, log line or `Debug` text holds a key or a part of the file that might be one.

mod file;
mod ring;
mod signer;
mod text;

pub use file::{KeyError, KeyFile};
pub use ring::{KeyRing, SealContext, SealError, Sealed, UnsealError};
pub(crate) use signer::Signer;
pub use text::RingError;
