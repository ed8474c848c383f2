//! Trouble that comes again with every turn, as a disk that is full does: told when it begins, when it is another, and when it is over. In between it is told
//! by the state (`forebay status`) and by counters, and a log that nobody looks at does not grow with it.

/// What was told last, and is not over yet.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    told: Option<String>,
}

impl Trouble {
    /// Notes that there is trouble; whether it is to be told.
    pub(crate) fn is_news(&mut self, reason: &str) -> bool {
        let is_news = self.told.as_deref() != Some(reason);
        if is_news {
            self.told = Some(reason.to_owned());
        }
        is_news
    }

    /// What it is, if there is any.
    pub(crate) fn told(&self) -> Option<&str> {
        self.told.as_deref()
    }

    /// Notes that there is none; whether it is over with this.
    pub(crate) fn is_over(&mut self) -> bool {
        self.told.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_and_again_when_it_is_another_or_was_over() {
        let mut trouble = Trouble::default();
        assert!(!trouble.is_over());
        assert_eq!(
            ["full", "full", "gone", "full"].map(|reason| trouble.is_news(reason)),
            [true, false, true, true]
        );
        assert_eq!([trouble.is_over(), trouble.is_over()], [true, false]);
        assert!(trouble.is_news("full"));
    }
}
