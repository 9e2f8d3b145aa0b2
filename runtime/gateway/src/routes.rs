//! Which flow a method and path below `/api` mean, for one live plan.

use std::collections::BTreeMap;

use spillgate_config::Plan;
use spillgate_config::plan::TenantPlan;
use spillgate_engine::intake::PathTemplate;

/// The flows of a plan by path.
#[derive(Debug)]
pub(crate) struct Routes {
    router: matchit::Router<Box<[usize]>>,
    /// By flow.
    templates: Box<[PathTemplate]>,
}

/// Why there is no flow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// None that this tenant may call.
    Flow,
    /// Only with these methods, as `Allow` lists them.
    Method(String),
}

impl Routes {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut paths: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, flow) in plan.flows.iter().enumerate() {
            let Some(endpoint) = &flow.http else { continue };
            paths.entry(nameless(&endpoint.path)).or_default().push(index);
        }
        let mut router = matchit::Router::new();
        for (path, flows) in paths {
            // The checker refuses paths that clash, so this names a fault of our own.
            if let Err(error) = router.insert(path, flows.into()) {
                tracing::error!(%error, "a path cannot be served");
            }
        }
        Routes { router, templates: plan.flows.iter().map(|flow| PathTemplate::new(flow)).collect() }
    }

    /// Where the flow's inputs stand in its path.
    pub(crate) fn template(&self, flow: usize) -> &PathTemplate {
        &self.templates[flow]
    }

    /// The index of the flow. `path` is what follows `/api`. To a tenant that may not call it, it does not exist. What answers
    /// GET answers HEAD.
    pub(crate) fn find(&self, plan: &Plan, tenant: &TenantPlan, method: &str, path: &str) -> Result<usize, Missing> {
        let method = if method == "HEAD" { "GET" } else { method };
        let found = self.router.at(path).map_err(|_| Missing::Flow)?;
        let mut allowed = found.value.iter().filter(|flow| tenant.may_call(&plan.flows[**flow].name));
        let method_of = |flow: &usize| plan.flows[*flow].http.as_ref().map_or("", |endpoint| endpoint.method);
        if let Some(flow) = allowed.clone().find(|flow| method_of(flow) == method) {
            return Ok(*flow);
        }
        let shown = |flow| if method_of(flow) == "GET" { "GET, HEAD" } else { method_of(flow) };
        let Some(first) = allowed.next() else { return Err(Missing::Flow) };
        let methods = allowed.fold(shown(first).to_owned(), |list, flow| list + ", " + shown(flow));
        Err(Missing::Method(methods))
    }
}

/// The path with its inputs numbered: `/trucks/{id}` and `/trucks/{truck}` are one place with two methods.
pub(crate) fn nameless(path: &str) -> String {
    let parts = path.split('/').enumerate().map(|(index, part)| match part.starts_with('{') {
        true => format!("{{part{index}}}"),
        false => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}
