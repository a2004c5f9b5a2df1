//! Pagination: pages of lists, and the `Link` header that leads through them (RFC 8288):
//!
//! ```text
//! <http://localhost/repos/o/n/issues?state=all&page=1>; rel="prev",
//! <http://localhost/repos/o/n/issues?state=all&page=3>; rel="next",
//! <http://localhost/repos/o/n/issues?state=all&page=9>; rel="last",
//! <http://localhost/repos/o/n/issues?state=all&page=1>; rel="first"
//! ```
//!
//! All other query parameters are kept, so a client follows the links without knowing them.

use super::http::{RequestQuery, SimulatedRequest};

/// Default of `per_page`, as on GitHub.
const DEFAULT_PER_PAGE: usize = 30;
/// Maximum of `per_page`, as on GitHub; larger values are capped silently.
const MAX_PER_PAGE: usize = 100;

/// The requested page of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestedPage {
    pub(super) per_page: usize,
    /// From 1.
    pub(super) number: usize,
}

impl RequestedPage {
    /// Reads `page` and `per_page`. Invalid values give the defaults, as on GitHub.
    pub(super) fn from_query(query: &RequestQuery) -> RequestedPage {
        let number = |name: &str| query.get(name).and_then(|text| text.parse::<usize>().ok());
        let per_page = number("per_page").filter(|count| *count > 0).unwrap_or(DEFAULT_PER_PAGE).min(MAX_PER_PAGE);
        RequestedPage { per_page, number: number("page").unwrap_or(1).max(1) }
    }

    /// Returns the index of the first item, from 0.
    pub(super) fn start_index(self) -> usize {
        (self.number - 1).saturating_mul(self.per_page)
    }

    /// Returns the items of this page; empty beyond the end.
    pub(super) fn slice_items<T>(self, items: &[T]) -> &[T] {
        let start = self.start_index().min(items.len());
        &items[start..items.len().min(start.saturating_add(self.per_page))]
    }

    /// Builds `prev`, `next`, `last` and `first` in GitHub's order. `None` if everything fits on one page.
    pub(super) fn link_header(self, base: &str, request: &SimulatedRequest, total: usize) -> Option<String> {
        let last = total.div_ceil(self.per_page).max(1);
        if last == 1 && self.number == 1 {
            return None;
        }
        let mut links = Vec::new();
        let mut add = |number: usize, rel: &str| {
            let others = request.query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("page="));
            let page = format!("page={number}");
            let query: Vec<&str> = others.chain([page.as_str()]).collect();
            let path = request.path.strip_prefix("/api/v3").unwrap_or(&request.path);
            links.push(format!("<{base}{path}?{}>; rel=\"{rel}\"", query.join("&")));
        };
        if self.number > 1 {
            add((self.number - 1).min(last), "prev");
        }
        if self.number < last {
            add(self.number + 1, "next");
            add(last, "last");
        }
        if self.number > 1 {
            add(1, "first");
        }
        Some(links.join(", "))
    }
}

/// Returns the index range that a query asks for: first item, and one past the last. The benchmark uses it to find
/// out what an agent read.
pub fn item_range_of_page(query: &str) -> (usize, usize) {
    let page = RequestedPage::from_query(&RequestQuery::parse(query));
    (page.start_index(), page.start_index().saturating_add(page.per_page))
}

#[cfg(test)]
mod tests {
    use super::super::http::RequestMethod;
    use super::*;

    fn link(target: &str, total: usize) -> Option<String> {
        let request = SimulatedRequest::new(RequestMethod::Get, target);
        RequestedPage::from_query(&RequestQuery::parse(&request.query)).link_header("http://h", &request, total)
    }

    #[test]
    fn links_lead_through_all_pages() {
        assert_eq!(link("/x?per_page=3", 3), None);
        assert_eq!(
            link("/x?per_page=3", 7).as_deref(),
            Some("<http://h/x?per_page=3&page=2>; rel=\"next\", <http://h/x?per_page=3&page=3>; rel=\"last\"")
        );
        let middle = link("/x?per_page=3&page=2", 7).unwrap();
        for rel in ["prev", "next", "last", "first"] {
            assert!(middle.contains(&format!("rel=\"{rel}\"")), "{middle}");
        }
        let last = link("/x?per_page=3&page=3", 7).unwrap();
        assert!(last.contains("prev") && last.contains("first") && !last.contains("next"));
    }

    #[test]
    fn pages_that_make_no_sense_are_the_first() {
        let page = |query: &str| RequestedPage::from_query(&RequestQuery::parse(query));
        assert_eq!(page("per_page=1000").per_page, 100);
        assert_eq!(page("per_page=0&page=0").per_page, 30);
        assert_eq!(page("page=-1").number, 1);
        assert!(page("page=18446744073709551615&per_page=100").slice_items(&[1, 2, 3]).is_empty());
    }
}
