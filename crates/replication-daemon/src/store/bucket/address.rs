//! The address of a bucket: `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`.

use core::fmt;
use core::str::FromStr;

use http::Uri;
use object_store::path::Path as Name;
use percent_encoding::percent_decode_str;
use thiserror::Error;

/// A bucket of an S3-compatible object store, and a prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketAddress {
    /// The bucket.
    pub(super) bucket: String,
    /// The prefix of all names; may be empty.
    pub(super) prefix: Name,
    /// The URL of the server; none for the one of Amazon or of `AWS_ENDPOINT_URL`.
    pub(super) endpoint: Option<String>,
    /// The region; none for that of `AWS_REGION`.
    pub(super) region: Option<String>,
}

/// Why an address is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// It is of no known kind.
    #[error(
        "`{0}` is not a bucket: write s3://BUCKET/PREFIX, with ?endpoint=URL&region=NAME if needed"
    )]
    Kind(String),
    /// It contains a user or a password.
    #[error(
        "the address of a bucket must not contain a key: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
    )]
    Key,
    /// It has an unknown option.
    #[error("a bucket has no option `{0}`: use endpoint or region")]
    Option(String),
    /// The endpoint is not a URL.
    #[error(
        "the endpoint `{0}` is not a URL: write endpoint=https://HOST or endpoint=http://HOST:PORT"
    )]
    Endpoint(String),
    /// The prefix has a segment that no object may have.
    #[error("`{0}` is not a valid prefix: remove empty segments, `.` and `..`")]
    Prefix(String),
}

impl FromStr for BucketAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let kind = || AddressError::Kind(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| kind())?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("s3"));
        let bucket = authority.ok_or_else(kind)?.as_str();
        if bucket.contains('@') {
            return Err(AddressError::Key);
        }
        if bucket.is_empty() || bucket.contains(':') {
            return Err(kind());
        }
        let prefix = uri.path().trim_matches('/');
        let prefix = Name::parse(prefix).map_err(|_| AddressError::Prefix(prefix.to_owned()))?;
        let mut address =
            BucketAddress { bucket: bucket.to_owned(), prefix, endpoint: None, region: None };
        for option in uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            match name {
                "endpoint" => address.endpoint = Some(url(value)?),
                "region" if !value.is_empty() => address.region = Some(value),
                _ => return Err(AddressError::Option(name.to_owned())),
            }
        }
        Ok(address)
    }
}

/// The URL of a server, without a path.
fn url(text: String) -> Result<String, AddressError> {
    let uri: Option<Uri> = text.parse().ok();
    let is_url = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
    });
    if is_url {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err(AddressError::Endpoint(text))
    }
}

impl fmt::Display for BucketAddress {
    /// Without the options: as logs and errors show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if self.prefix.as_ref().is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

impl BucketAddress {
    /// The address with its options, from which it can be parsed again.
    pub fn to_url(&self) -> String {
        let mut url = self.to_string();
        let options = [("endpoint", &self.endpoint), ("region", &self.region)];
        let options = options.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        for (number, (name, value)) in options.enumerate() {
            // These would end the value, or be decoded.
            let value = value.replace('%', "%25").replace('&', "%26").replace('#', "%23");
            url.push_str(if number == 0 { "?" } else { "&" });
            url.push_str(name);
            url.push('=');
            url.push_str(&value);
        }
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BucketAddress, AddressError> {
        text.parse()
    }

    #[test]
    fn bucket_address_has_prefix_endpoint_and_region() {
        let address = parse("s3://pages/site/one/?endpoint=http://127.0.0.1:9000/&region=eu-1");
        let address = address.unwrap();
        assert_eq!(address.bucket, "pages");
        assert_eq!(address.prefix.as_ref(), "site/one");
        assert_eq!(address.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!(address.region.as_deref(), Some("eu-1"));
        assert_eq!(address.to_string(), "s3://pages/site/one");
        let plain = parse("s3://pages").unwrap();
        assert_eq!((plain.to_url().as_str(), plain.prefix.as_ref()), ("s3://pages", ""));
    }

    #[test]
    fn bucket_address_is_parsed_again_from_its_url() {
        for text in [
            "s3://b",
            "s3://b/p",
            "s3://b/p?region=x",
            "s3://b/p/q?endpoint=https://h:1&region=a%26b",
            "s3://b?endpoint=http%3A%2F%2Fh",
        ] {
            let address = parse(text).unwrap();
            assert_eq!(parse(&address.to_url()), Ok(address), "{text}");
        }
    }

    #[test]
    fn invalid_bucket_address_says_what_to_write() {
        for (text, words) in [
            ("pages", "write s3://BUCKET/PREFIX"),
            ("gs://pages/a", "write s3://BUCKET/PREFIX"),
            ("s3:///a", "write s3://BUCKET/PREFIX"),
            ("s3://pages:9000/a", "write s3://BUCKET/PREFIX"),
            ("s3://key:secret@pages/a", "AWS_ACCESS_KEY_ID"),
            ("s3://pages/a?cache=1", "use endpoint or region"),
            ("s3://pages/a?region=", "use endpoint or region"),
            ("s3://pages/a?endpoint=localhost", "endpoint=https://HOST"),
            ("s3://pages/a//b", "remove empty segments"),
            ("s3://pages/a/../b", "remove empty segments"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
