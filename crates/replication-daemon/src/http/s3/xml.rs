//! The answers of S3 in XML.

use std::borrow::Cow;

use http::header;
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::BUCKET;
use crate::http::content::Content;

const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
/// Lull does not know when the bucket was made.
const CREATED: &str = "1970-01-01T00:00:00.000Z";

/// An error of S3.
#[derive(Debug)]
pub(super) struct S3Error {
    status: StatusCode,
    code: &'static str,
    message: Cow<'static, str>,
}

#[derive(Serialize)]
#[serde(rename = "Error", rename_all = "PascalCase")]
struct ErrorXml<'a> {
    code: &'a str,
    message: &'a str,
    resource: &'a str,
}

impl S3Error {
    pub(super) const fn fixed(status: StatusCode, code: &'static str, text: &'static str) -> Self {
        S3Error { status, code, message: Cow::Borrowed(text) }
    }

    pub(super) fn new(status: StatusCode, code: &'static str, message: String) -> Self {
        S3Error { status, code, message: Cow::Owned(message) }
    }

    /// The response to a request for this path.
    pub(super) fn response(&self, resource: &str) -> Response<Content> {
        let (code, message) = (self.code, &*self.message);
        let mut response = document(&ErrorXml { code, message, resource });
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

/// A response with a document that no cache may use without asking.
fn document(value: &impl Serialize) -> Response<Content> {
    let xml = quick_xml::se::to_string(value).unwrap_or_default();
    let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{xml}");
    let mut response = Response::new(Content::of(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[derive(Serialize)]
#[serde(rename = "LocationConstraint")]
struct Location {
    #[serde(rename = "@xmlns")]
    xmlns: &'static str,
}

/// The region of the bucket: the usual one, which has no name.
pub(super) fn location() -> Response<Content> {
    document(&Location { xmlns: NAMESPACE })
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Bucket {
    name: &'static str,
    creation_date: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Buckets {
    bucket: Bucket,
}

#[derive(Serialize)]
struct Owner {
    #[serde(rename = "ID")]
    id: &'static str,
}

#[derive(Serialize)]
#[serde(rename = "ListAllMyBucketsResult", rename_all = "PascalCase")]
struct AllBuckets {
    #[serde(rename = "@xmlns")]
    xmlns: &'static str,
    owner: Owner,
    buckets: Buckets,
}

/// The buckets.
pub(super) fn buckets() -> Response<Content> {
    let bucket = Bucket { name: BUCKET, creation_date: CREATED };
    let (owner, buckets) = (Owner { id: BUCKET }, Buckets { bucket });
    document(&AllBuckets { xmlns: NAMESPACE, owner, buckets })
}

/// A file in a listing.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Contents {
    pub(super) key: String,
    pub(super) last_modified: String,
    #[serde(rename = "ETag")]
    pub(super) e_tag: String,
    pub(super) size: u64,
    pub(super) storage_class: &'static str,
}

/// A common beginning in a listing.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CommonPrefixes {
    pub(super) prefix: String,
}

/// A page of a listing, of version 1 or 2.
#[derive(Default, Serialize)]
#[serde(rename = "ListBucketResult", rename_all = "PascalCase")]
pub(super) struct Listing {
    #[serde(rename = "@xmlns")]
    pub(super) xmlns: &'static str,
    pub(super) name: &'static str,
    pub(super) prefix: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) marker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_marker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) continuation_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_continuation_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_count: Option<usize>,
    pub(super) max_keys: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delimiter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) encoding_type: Option<&'static str>,
    pub(super) is_truncated: bool,
    pub(super) contents: Vec<Contents>,
    pub(super) common_prefixes: Vec<CommonPrefixes>,
}

impl Listing {
    pub(super) fn response(mut self) -> Response<Content> {
        (self.xmlns, self.name) = (NAMESPACE, BUCKET);
        document(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_escape_what_xml_reserves() {
        let error = ErrorXml { code: "A", message: "<&>", resource: "/lull/a&b" };
        let expected = "<Error><Code>A</Code><Message>&lt;&amp;&gt;</Message>\
                        <Resource>/lull/a&amp;b</Resource></Error>";
        assert_eq!(quick_xml::se::to_string(&error).unwrap(), expected);
        let prefix = |prefix: &str| CommonPrefixes { prefix: prefix.to_owned() };
        let common_prefixes = vec![prefix("a/"), prefix("b/")];
        let listing = Listing { name: BUCKET, common_prefixes, ..Listing::default() };
        let expected = "<ListBucketResult xmlns=\"\"><Name>lull</Name><Prefix/><MaxKeys>0</MaxKeys>\
                        <IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>a/</Prefix>\
                        </CommonPrefixes><CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>\
                        </ListBucketResult>";
        assert_eq!(quick_xml::se::to_string(&listing).unwrap(), expected);
    }
}
