//! Text of roots for messages.

use url::Url;

/// A URL without user, password, query and fragment; anything that is no URL stays as it is unless it
/// looks as if it carried one of these.
pub fn redact_url(text: &str) -> String {
    match Url::parse(text) {
        Ok(mut url) => {
            // Both fail only for URLs that cannot carry them.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.set_fragment(None);
            url.to_string()
        }
        Err(_) => text
            .split(['?', '#'])
            .next()
            .unwrap_or_default()
            .rsplit('@')
            .next()
            .unwrap_or_default()
            .to_owned(),
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
