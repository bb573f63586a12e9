//! One function over many items on several threads. Results are in the order of the items, so they
//! do not depend on the number of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Applies `of` to all items.
pub(super) fn in_parallel<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    of: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    if threads <= 1 || items.len() <= 1 {
        return items.iter().map(of).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                let mut own = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    own.push((index, of(item)));
                }
                // A thread that panicked ends the scope with its panic: nothing half done is read.
                done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(own);
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        for threads in [1, 2, 7] {
            let squares = in_parallel(threads, &items, |item| item * item);
            assert!(squares.iter().zip(&items).all(|(square, item)| *square == item * item));
        }
    }
}
