//! Where a flow's inputs stand in its path.

use spillgate_config::plan::Flow;

/// The places of the inputs in a flow's path, found once per plan. Finding a part costs no allocation.
#[derive(Clone, Debug, Default)]
pub struct PathTemplate {
    /// Segment (from 0, after the leading slash) and index of the input that stands there.
    parts: Box<[(usize, usize)]>,
}

impl PathTemplate {
    /// Reads `/trucks/{id}/position`. A part always is a whole segment.
    pub fn new(flow: &Flow) -> Self {
        let path = flow.http.as_ref().map_or("", |endpoint| &endpoint.path);
        let segments = path.trim_start_matches('/').split('/').enumerate();
        let parts = segments.filter_map(|(segment, text)| {
            let name = text.strip_prefix('{')?.strip_suffix('}')?;
            let input = flow.inputs.iter().position(|input| &*input.name == name)?;
            Some((segment, input))
        });
        PathTemplate { parts: parts.collect() }
    }

    /// The text of the input's segment in `path`, percent-encoded as it came.
    pub fn part<'a>(&self, path: &'a str, input: usize) -> Option<&'a str> {
        let (segment, _) = self.parts.iter().find(|(_, known)| *known == input)?;
        path.trim_start_matches('/').split('/').nth(*segment)
    }
}
