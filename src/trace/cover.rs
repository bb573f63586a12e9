//! Sets of time: what a list of spans covers, and what two of them share.

use super::Span;
use crate::units::Nanos;

/// Spans without gaps inside, ascending, that cover what the given ones cover.
pub(crate) fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|span| span.start < span.end);
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut found: Vec<Span> = Vec::new();
    for span in spans {
        match found.last_mut().filter(|last| span.start <= last.end) {
            Some(last) => last.end = last.end.max(span.end),
            None => found.push(span),
        }
    }
    found
}

/// How long spans of a [`union`] are together.
pub(crate) fn length(spans: &[Span]) -> Nanos {
    spans.iter().map(|span| span.duration()).sum()
}

/// How long two unions share.
pub(crate) fn overlap(one: &[Span], other: &[Span]) -> Nanos {
    let (mut sum, mut i, mut j) = (Nanos(0), 0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        let (start, end) = (a.start.max(b.start), a.end.min(b.end));
        if start < end {
            sum += end - start;
        }
        i += usize::from(a.end <= b.end);
        j += usize::from(b.end <= a.end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spans() -> impl Strategy<Value = Vec<Span>> {
        let span = (0u64..60, 0u64..20);
        let span = span.prop_map(|(at, long)| Span { start: Nanos(at), end: Nanos(at + long) });
        proptest::collection::vec(span, 0..12)
    }

    /// The definition: instant by instant.
    fn covers(spans: &[Span], instant: u64) -> bool {
        spans.iter().any(|span| span.start.0 <= instant && instant < span.end.0)
    }

    proptest! {
        #[test]
        fn sets_of_time_are_what_their_instants_say(a in spans(), b in spans()) {
            let count = |wanted: &dyn Fn(u64) -> bool| {
                Nanos((0..100).filter(|instant| wanted(*instant)).count() as u64)
            };
            let (one, other) = (union(a.clone()), union(b.clone()));
            prop_assert!(one.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(length(&one), count(&|instant| covers(&a, instant)));
            let both = count(&|instant| covers(&a, instant) && covers(&b, instant));
            prop_assert_eq!(overlap(&one, &other), both);
        }
    }
}
