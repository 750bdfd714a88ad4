use super::certificates::{CertificateAuthority, ServerCertificate, shown};
use std::time::{Duration, SystemTime};

/// How long after Envoys received a CA it signs, and how long after it signs the one before is removed. The way of
/// a CA to an Envoy is a Secret's to the translator, a ConfigMap's to the Envoy, minutes each. Less than a day, since a daily
/// run may come a little sooner than the day before, and would have to wait for another day.
const NOTICE: Duration = Duration::from_secs(23 * 3600);

/// With less there would be a time without a good one, as changes take a day each.
pub(super) const LEAST_LIFE: Duration = Duration::from_secs(3 * 24 * 3600);

/// The latest time of the next daily run, which may be a little later than the day before.
const NEXT_LOOK: Duration = Duration::from_secs(25 * 3600);

#[derive(Clone, Copy)]
pub(super) struct Lives {
    pub(super) certificate: Duration,
    pub(super) ca: Duration,
}

/// What to write, if anything, and the messages to print.
pub(super) struct Renewed {
    pub(super) ca: Option<CertificateAuthority>,
    pub(super) certificate: Option<ServerCertificate>,
    pub(super) messages: Vec<String>,
    /// How long the certificate is good.
    pub(super) until: String,
}

/// What follows from what there is and the time. Each is a reason, for people.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    new_ca: Option<&'static str>,
    new_certificate: Option<&'static str>,
    /// Only the newest CA is to be trusted from now on.
    forgets: bool,
}

/// No client is shown a certificate of a CA that it has not received [`NOTICE`] before: a new CA is distributed first,
/// then it signs, then the one before is removed. Only a certificate that would end sooner is signed at once.
pub(super) fn renew(
    held_ca: Option<CertificateAuthority>,
    held: Option<ServerCertificate>,
    names: &[String],
    lives: Lives,
    now: SystemTime,
) -> anyhow::Result<Renewed> {
    let decision = decide(held_ca.as_ref(), held.as_ref(), names, now);
    let mut messages = Vec::new();
    let (ca, is_new) = match (held_ca, decision.new_ca) {
        (Some(ca), None) => (ca, false),
        (_, reason) => {
            messages.push(format!("a new CA: {}", reason.unwrap_or("there is none")));
            (CertificateAuthority::make(now, lives.ca)?, true)
        }
    };
    let mut next = match (&held, decision.new_certificate) {
        (Some(held), None) => held.clone(),
        (_, reason) => {
            messages.push(format!("a new certificate: {}", reason.unwrap_or("there is none")));
            ca.sign(names, now, lives.certificate)?
        }
    };
    let before = held.as_ref().map(|held| held.trusted.clone()).unwrap_or_default();
    let was_trusted = before.iter().any(|trusted| trusted.subject == ca.subject);
    let mut others = before.clone();
    others.retain(|other| {
        other.subject != ca.subject && other.validity.until > now && !decision.forgets
    });
    for gone in before.iter().filter(|gone| gone.subject != ca.subject) {
        if !others.iter().any(|other| other.subject == gone.subject) {
            messages.push(format!("{} is not trusted any more", gone.subject));
        }
    }
    next.trusted_since = match &held {
        Some(held) if was_trusted => held.trusted_since,
        // In a new installation all clients receive it at once.
        None => None,
        Some(_) => {
            messages.push(format!("Envoys are configured to trust {}", ca.subject));
            Some(now)
        }
    };
    next.trusted = vec![ca.trusted()];
    next.trusted.extend(others);
    let until = shown(next.validity.until);
    // There is a message for each thing that differs.
    let certificate = (!messages.is_empty()).then_some(next);
    Ok(Renewed { ca: is_new.then_some(ca), certificate, messages, until })
}

fn decide(
    ca: Option<&CertificateAuthority>,
    held: Option<&ServerCertificate>,
    names: &[String],
    now: SystemTime,
) -> Decision {
    let new_ca = match ca {
        None => Some("there is none"),
        Some(ca) if ca.validity.is_due(now) => Some("two thirds of its lifetime are over"),
        Some(_) => None,
    };
    let Some(held) = held else {
        return Decision { new_ca, new_certificate: Some("there is none"), forgets: false };
    };
    let signer = ca.filter(|_| new_ca.is_none());
    let is_known = signer.is_some_and(|signer| {
        held.trusted.iter().any(|trusted| trusted.subject == signer.subject)
            && held.trusted_since.is_none_or(|since| now >= since + NOTICE)
    });
    let is_of_signer = signer.is_some_and(|signer| signer.subject == held.issuer);
    let reason = if held.validity.is_due(now) {
        Some("two thirds of its lifetime are over")
    } else if held.names != names {
        Some("it is for other names")
    } else if !is_of_signer {
        Some("there is a new CA")
    } else {
        None
    };
    let is_ending = now + NEXT_LOOK >= held.validity.until;
    let new_certificate = reason.filter(|_| is_known || is_ending);
    let is_settled = now >= held.validity.from + NOTICE;
    Decision {
        new_ca,
        new_certificate,
        forgets: is_of_signer && new_certificate.is_none() && is_settled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    const DAY: Duration = Duration::from_secs(24 * 3600);
    const LIVES: Lives = Lives {
        certificate: Duration::from_secs(9 * 24 * 3600),
        ca: Duration::from_secs(30 * 24 * 3600),
    };
    const NAME: &str = "heliograph-distributor.heliograph-system.svc";

    /// A key of a Secret, and what is under it.
    type Entry = (&'static str, String);

    /// The two Secrets, as text.
    #[derive(Clone, Default)]
    struct Kept {
        ca: Option<[Entry; 2]>,
        certificate: Option<([Entry; 3], Option<String>)>,
    }

    fn names() -> Vec<String> {
        vec![NAME.to_owned()]
    }

    /// A day in the year 2030.
    fn day(number: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + DAY * (21_900 + number)
    }

    impl Kept {
        fn certificate(&self) -> Option<ServerCertificate> {
            self.certificate.as_ref().map(|([(_, pem), (_, key), (_, trusted)], since)| {
                ServerCertificate::read(pem, key, trusted, since.as_deref()).unwrap()
            })
        }

        /// What is there after a run, and its messages.
        fn run(&self, names: &[String], now: SystemTime) -> (Self, Vec<String>) {
            let ca = self.ca.as_ref();
            let ca = ca.map(|[(_, pem), (_, key)]| CertificateAuthority::read(pem, key).unwrap());
            let renewed = renew(ca, self.certificate(), names, LIVES, now).unwrap();
            let mut next = self.clone();
            if let Some(ca) = renewed.ca {
                next.ca = Some(ca.data());
            }
            if let Some(new) = renewed.certificate {
                next.certificate = Some((new.data(), new.trusted_since.map(shown)));
            }
            (next, renewed.messages)
        }

        /// Whether an Envoy that has received this accepts the certificate of `shown`.
        fn takes(&self, shown: &Self, now: SystemTime) -> bool {
            self.takes_as(shown, NAME, now)
        }

        /// The same by another name or address.
        fn takes_as(&self, shown: &Self, name: &str, now: SystemTime) -> bool {
            let ([_, _, (_, trusted)], _) = self.certificate.as_ref().unwrap();
            let ([(_, pem), ..], _) = shown.certificate.as_ref().unwrap();
            let mut roots = RootCertStore::empty();
            for ca in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
                roots.add(ca.unwrap()).unwrap();
            }
            let provider = Arc::new(ring::default_provider());
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .unwrap();
            let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
            verifier
                .verify_server_cert(
                    &certificate,
                    &[],
                    &ServerName::try_from(name).unwrap(),
                    &[],
                    UnixTime::since_unix_epoch(now),
                )
                .is_ok()
        }
    }

    /// Through several CAs: an Envoy always trusts the distributor, though each may be a day behind.
    #[test]
    fn nobody_is_shown_a_certificate_that_it_does_not_trust() {
        let mut before = Kept::default().run(&names(), day(0)).0;
        let (mut authorities, mut certificates) = (BTreeSet::new(), BTreeSet::new());
        for number in 1..120 {
            let now = day(number);
            let (after, _) = before.run(&names(), now);
            for (told, shown) in
                [(&before, &before), (&before, &after), (&after, &before), (&after, &after)]
            {
                assert!(told.takes(shown, now), "day {number}");
            }
            let held = after.certificate().unwrap();
            assert!(held.trusted.len() <= 2, "day {number}: {} are trusted", held.trusted.len());
            authorities.insert(held.trusted[0].subject.clone());
            certificates.insert(held.data()[0].1.clone());
            before = after;
        }
        assert_eq!(authorities.len(), 6, "one for each 20 days");
        assert!(
            (18..=24).contains(&certificates.len()),
            "one for each 6 days: {}",
            certificates.len()
        );
    }

    #[test]
    fn what_is_good_stays() {
        let (made, messages) = Kept::default().run(&names(), day(0));
        assert_eq!(messages, ["a new CA: there is none", "a new certificate: there is none"]);
        let (after, messages) = made.run(&names(), day(3));
        assert_eq!(messages, [""; 0]);
        assert_eq!(after.certificate.unwrap().0, made.certificate.unwrap().0);
    }

    /// How an operator replaces a CA: by deleting it.
    #[test]
    fn a_deleted_authority_is_replaced_in_three_steps() {
        let mut kept = Kept::default().run(&names(), day(0)).0;
        kept.ca = None;
        let mut messages = Vec::new();
        for number in 1..4 {
            let (after, lines) = kept.run(&names(), day(number));
            messages.push(
                lines
                    .iter()
                    .map(|line| line.split(": ").next().unwrap().to_owned())
                    .collect::<Vec<_>>(),
            );
            kept = after;
        }
        assert_eq!(messages[0].len(), 2, "{messages:?}");
        assert!(
            messages[0][0] == "a new CA" && messages[0][1].starts_with("Envoys are configured"),
            "{messages:?}"
        );
        assert_eq!(messages[1], ["a new certificate"]);
        assert!(
            messages[2].len() == 1 && messages[2][0].ends_with("is not trusted any more"),
            "{messages:?}"
        );
    }

    /// No run of a CronJob begins at the same moment as that of the day before.
    #[test]
    fn a_step_takes_a_day_also_when_the_next_run_is_early() {
        let early = |number: u32| day(number) - Duration::from_secs(60) * number;
        let mut kept = Kept::default().run(&names(), day(0)).0;
        kept.ca = None;
        let mut messages = Vec::new();
        for number in 1..4 {
            let (after, lines) = kept.run(&names(), early(number));
            messages.push(lines.len());
            kept = after;
        }
        assert_eq!(messages, [2, 1, 1], "told, signed, forgotten");
    }

    #[test]
    fn addresses_are_signed_for_as_such_and_once() {
        let names = [NAME, "192.0.2.10", "2001:db8::10"].map(str::to_owned);
        let made = Kept::default().run(&names, day(0)).0;
        assert_eq!(made.certificate().unwrap().names, names);
        assert_eq!(made.run(&names, day(1)).1, [""; 0]);
        for name in &names {
            assert!(made.takes_as(&made, name, day(0)), "{name}");
        }
        assert!(!made.takes_as(&made, "192.0.2.11", day(0)));
    }

    #[test]
    fn other_names_are_signed_for_at_once() {
        let made = Kept::default().run(&names(), day(0)).0;
        let more = [NAME.to_owned(), "xds.example.org".to_owned()];
        let (after, messages) = made.run(&more, day(1));
        assert_eq!(messages, ["a new certificate: it is for other names"]);
        assert_eq!(after.certificate().unwrap().names, more);
        assert!(made.takes(&after, day(1)));
    }

    /// No client would accept the existing one.
    #[test]
    fn what_has_ended_is_replaced_at_once() {
        let made = Kept::default().run(&names(), day(0)).0;
        let (after, messages) = made.run(&names(), day(100));
        assert_eq!(messages.len(), 4, "{messages:?}");
        assert!(after.takes(&after, day(100)));
    }

    #[test]
    fn an_authority_that_was_not_made_here_is_refused() {
        let made = CertificateAuthority::make(day(0), DAY).unwrap().data();
        let other = CertificateAuthority::make(day(0), DAY).unwrap().data();
        assert!(CertificateAuthority::read(&made[0].1, &made[1].1).is_ok());
        for (certificate, key) in
            [(&made[0].1, &other[1].1), (&made[0].1, &made[0].1), (&made[1].1, &made[1].1)]
        {
            let refused = CertificateAuthority::read(certificate, key).err().unwrap().to_string();
            assert!(!refused.contains("BEGIN"), "{refused}");
        }
    }
}
