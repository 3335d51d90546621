//! The view of an engine, locked for a look at it.
//!
//! Law: who looks at a view neither looks again nor changes it before letting go. Between two looks of one thread, a
//! writer may come to wait for the first to end; the second then waits for the writer, and nobody goes on. It takes
//! another thread at the wrong moment, so builds with debug assertions check it at every look.

use std::ops::Deref;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::View;
use crate::locks;

/// A view, locked.
#[derive(Debug)]
pub(crate) struct Looking<'v> {
    view: RwLockReadGuard<'v, View>,
    #[cfg(debug_assertions)]
    _look: law::Look,
}

impl Deref for Looking<'_> {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

/// Looks at a view.
pub(super) fn look(view: &RwLock<View>) -> Looking<'_> {
    Looking {
        #[cfg(debug_assertions)]
        _look: law::Look::at(view),
        view: locks::read(view),
    }
}

/// Locks a view to change it.
pub(super) fn change(view: &RwLock<View>) -> RwLockWriteGuard<'_, View> {
    #[cfg(debug_assertions)]
    law::has_let_go(view);
    locks::write(view)
}

#[cfg(debug_assertions)]
mod law {
    use std::cell::RefCell;
    use std::sync::RwLock;

    use super::View;

    thread_local! {
        /// The views that this thread looks at.
        static LOOKS: RefCell<Vec<*const RwLock<View>>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Debug)]
    pub(super) struct Look(*const RwLock<View>);

    impl Look {
        pub(super) fn at(view: &RwLock<View>) -> Look {
            has_let_go(view);
            LOOKS.with_borrow_mut(|looks| looks.push(view));
            Look(view)
        }
    }

    impl Drop for Look {
        fn drop(&mut self) {
            LOOKS.with_borrow_mut(|looks| looks.retain(|look| *look != self.0));
        }
    }

    pub(super) fn has_let_go(view: &RwLock<View>) {
        let is_looking = LOOKS.with_borrow(|looks| looks.contains(&std::ptr::from_ref(view)));
        assert!(!is_looking, "this thread looks at the view already: it would wait for a writer that waits for it");
    }
}
