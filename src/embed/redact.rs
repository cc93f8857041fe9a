//! What may be shown of a model spec, and whether it reaches out of the process. Both look at the
//! text alone and err on the safe side, so they hold for texts that do not parse.

/// Bytes of a spec that an error message shows.
const SHOWN_BYTES: usize = 160;

/// Whether a spec names a place: a file, a directory or a server.
pub(super) fn names_location(text: &str) -> bool {
    let lower = text.trim().to_ascii_lowercase();
    let (scheme, rest) = lower.split_once(':').unwrap_or(("", &lower));
    let remote = matches!(
        scheme.trim(),
        "candle" | "openai" | "tei" | "file" | "http" | "https" | "ftp" | "data"
    );
    let rest = rest.trim();
    let path = rest.starts_with(['/', '.', '~'])
        || rest.contains(['\\', '\0'])
        || rest.split('/').any(|part| part == "..")
        // A bare name may hold a slash, as `sentence-transformers/all-MiniLM-L6-v2`.
        || (!scheme.is_empty() && rest.contains('/'));
    let embedded = ["://", "file:", "http:", "https:"]
        .iter()
        .any(|mark| lower.contains(mark));
    remote || path || embedded
}

/// What an error message shows of a spec: a path or a name whole, of anything with a server only its
/// scheme, and nothing behind `?`, `#`, `=` or `@`.
pub fn redact(text: &str) -> String {
    let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
    let short = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.' | ' ');
        part.len() <= 16 && part.chars().all(plain)
    };
    let local = matches!(
        scheme.to_ascii_lowercase().as_str(),
        "" | "hash" | "static" | "candle" | "file"
    );
    if text.contains('@') || text.contains("//") || !local {
        return match scheme {
            scheme if !scheme.is_empty() && short(scheme) => format!("{scheme}:…"),
            _ => "…".to_owned(),
        };
    }
    let shown = rest.split(['?', '#', '=']).next().unwrap_or_default();
    let shown: String = shown
        .chars()
        .scan(0, |bytes, c| {
            *bytes += c.len_utf8();
            (*bytes <= SHOWN_BYTES).then_some(c)
        })
        .collect();
    let cut = if shown.len() < rest.len() { "…" } else { "" };
    let colon = if text.contains(':') { ":" } else { "" };
    format!("{scheme}{colon}{shown}{cut}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_seen_in_any_spelling() {
        for place in [
            "candle:/dir",
            "CANDLE:dir",
            " Candle:dir",
            "static:/dir",
            "STATIC:./dir",
            "static:a/b",
            "static:..",
            "static:~",
            "static:C:\\dir",
            "openai:m@http://h/v1",
            "OpenAI:m",
            "tei:http://h",
            "TEI:h:80",
            "file:/etc/passwd",
            "FILE:///etc/passwd",
            "http://h",
            "HTTPS://h",
            "http:h",
            "/etc/passwd",
            "./m",
            "../m",
            "a/../m",
            "~/m",
            "\\\\host\\share",
            "hash:file:/etc",
            "hash:384@http://h",
            "my-file:/etc",
            "name-http://h",
            "x:/etc",
            "s3://bucket",
            "data:,x",
        ] {
            assert!(names_location(place), "{place}");
        }
        for name in [
            "hash:384",
            "HASH:384",
            "static:minilm-l6-128",
            "m",
            "http",
            "file",
            "a.b",
            "sentence-transformers/all-MiniLM-L6-v2",
            "unknown:x",
            "",
        ] {
            assert!(!names_location(name), "{name}");
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        for (text, shown) in [
            ("hash:x", "hash:x"),
            ("candle:/dir?prompt=s3cr3t", "candle:/dir…"),
            ("/dir/api_key=s3cr3t", "/dir/api_key…"),
            ("openai:s3cr3t", "openai:…"),
            ("OPENAI:m@http://u:s3cr3t@h/v1", "OPENAI:…"),
            ("tei:http://h/?api_key=s3cr3t", "tei:…"),
            ("http://u:s3cr3t@h", "http:…"),
            ("u:s3cr3t@h", "u:…"),
            ("file://u:s3cr3t@h/", "file:…"),
            ("s3cr3t@host", "…"),
            ("s3cr3t-s3cr3t-s3cr3t:x", "…"),
        ] {
            assert_eq!(redact(text), shown, "{text}");
        }
        assert_eq!(redact(&"é".repeat(100)).len(), 160 + "…".len());
    }
}
