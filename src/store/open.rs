//! Text of roots for messages.

use url::Url;

/// A URL without user, password, query and fragment. Anything that is no URL with a host loses what
/// stands before an `@` and behind `?` or `#`.
pub fn redact_url(text: &str) -> String {
    match Url::parse(text) {
        Ok(mut url) if url.has_host() || url.scheme() == "file" => {
            // Both fail only for URLs that cannot carry them.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.set_fragment(None);
            url.to_string()
        }
        _ => {
            let shown = text.split(['?', '#']).next().unwrap_or_default();
            shown.rsplit('@').next().unwrap_or_default().to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_urls_are_dropped() {
        assert_eq!(
            redact_url("s3://user:pw@bucket/a?token=x#y"),
            "s3://bucket/a"
        );
        assert_eq!(redact_url("user:pw@host/a?x"), "host/a");
        assert_eq!(redact_url("./dir"), "./dir");
    }
}
