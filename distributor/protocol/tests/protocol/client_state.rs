//! What the pages show of a stream.

use crate::stream::*;
use heliograph_distributor_protocol::{ANSWER_TIMEOUT, Progress};
use heliograph_snapshot::ResourceType;

fn of(stream: &Stream, kind: ResourceType) -> Progress {
    stream.session.client_state().progress().find(|progress| progress.kind == kind).unwrap()
}

#[test]
fn it_tells_what_is_outstanding_rejected_and_unanswered() {
    for protocol in BOTH {
        let tables = |n, r: &str| view(n, &[(Listener, "l", "1"), (Route, "r", r)]);
        let mut stream = Stream::new(protocol, tables(1, "1"));
        let listeners = stream.ask(Listener, &[]);
        let progress = of(&stream, Listener);
        assert!(progress.wildcard && progress.names == 0 && progress.outstanding == 1);
        assert_eq!(progress.acknowledged, None);
        stream.settle(listeners);
        assert_eq!(of(&stream, Listener).outstanding, 0);
        let replies = stream.ask(Route, &["r"]);
        stream.settle(replies);
        let progress = of(&stream, Route);
        assert!(!progress.wildcard && progress.names == 1 && progress.outstanding == 0);
        assert_eq!(progress.acknowledged, Some(view(1, &[]).head()));
        assert_eq!(stream.session.client_state().acknowledged(), Some(view(1, &[]).head()));

        let table = one(stream.view(&tables(2, "2")));
        assert_eq!((of(&stream, Route).outstanding, of(&stream, Route).silent), (1, false));
        stream.wait(ANSWER_TIMEOUT);
        assert!(of(&stream, Route).silent, "{protocol:?}");
        let before = stream.session.client_state();
        stream.nack(&table, "cannot");
        assert!(!before.is(&stream.session.client_state()));
        let progress = of(&stream, Route);
        assert_eq!((progress.outstanding, progress.rejected, progress.silent), (0, 1, false));
        assert_eq!(progress.acknowledged, Some(view(1, &[]).head()), "{protocol:?}");

        let replies = stream.view(&tables(3, "3"));
        stream.settle(replies);
        let progress = of(&stream, Route);
        assert_eq!((progress.outstanding, progress.rejected, progress.silent), (0, 0, false));
        assert_eq!(progress.acknowledged, Some(view(3, &[]).head()));
    }
}
