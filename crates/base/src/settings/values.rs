//! Numbers, truth, text and lists as settings.

use super::{Setting, Value};
use crate::error::Result;
use std::path::PathBuf;

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn read(value: &Value<'_>) -> Result<Self> {
                let number = value.content.as_integer().and_then(|x| Self::try_from(x).ok());
                number.ok_or_else(|| value.unexpected("a whole number of 0 or more"))
            }
        }
    )*};
}
whole_numbers!(u32, u64, usize);

impl Setting for f64 {
    fn read(value: &Value<'_>) -> Result<Self> {
        let whole = value.content.as_integer().map(|x| x as f64);
        value.content.as_float().or(whole).ok_or_else(|| value.unexpected("a number"))
    }
}

impl Setting for f32 {
    fn read(value: &Value<'_>) -> Result<Self> {
        f64::read(value).map(|x| x as f32)
    }
}

impl Setting for bool {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.content.as_bool().ok_or_else(|| value.unexpected("true or false"))
    }
}

impl Setting for String {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.content.as_str().map(str::to_owned).ok_or_else(|| value.unexpected("text"))
    }
}

impl Setting for PathBuf {
    fn read(value: &Value<'_>) -> Result<Self> {
        String::read(value).map(Self::from)
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn read(value: &Value<'_>) -> Result<Self> {
        let Some(list) = value.content.as_array() else { return Err(value.unexpected("a list")) };
        list.iter().map(|item| T::read(&Value { content: item, ..value.clone() })).collect()
    }
}
