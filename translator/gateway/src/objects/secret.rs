use k8s_openapi::api::core::v1 as k8s;
use serde::Deserialize;
use std::ops::{Deref, DerefMut};
use zeroize::Zeroize;

/// A Secret, whose content is wiped from memory with the last copy of it.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Secret(k8s::Secret);

impl From<k8s::Secret> for Secret {
    fn from(secret: k8s::Secret) -> Self {
        Self(secret)
    }
}

impl Deref for Secret {
    type Target = k8s::Secret;

    fn deref(&self) -> &k8s::Secret {
        &self.0
    }
}

impl DerefMut for Secret {
    fn deref_mut(&mut self) -> &mut k8s::Secret {
        &mut self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.data.iter_mut().flat_map(|data| data.values_mut()).for_each(|it| it.0.zeroize());
        self.0.string_data.iter_mut().flat_map(|data| data.values_mut()).for_each(Zeroize::zeroize);
    }
}
