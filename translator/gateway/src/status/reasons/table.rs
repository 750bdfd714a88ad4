//! The table of conditions: part, type, then a row for each reason, with its status, what it means, and what to do.

use super::{Reason, StatusPart, Type};

/// The reason of what is not served. On `Programmed` alone, with nothing else wrong, proxies are who refuses.
pub(super) const INVALID: &str = "Invalid";

const UNREADABLE: &str = "It cannot be read: a field has a value that this version does not know, and the message names it. What was read last is in force.";
const READABLE: &str = "Take the value back, or install a version that knows it.";
const NOT_YET: &str =
    "No proxy has acknowledged this generation yet; the message says what is waited for.";
const WAIT: &str =
    "[What `Programmed` means](../status.md#what-programmed-means) has a row for each message.";
const ACKNOWLEDGED: &str =
    "A proxy has acknowledged this generation. The message counts those that have it.";
const A_FEW: &str = "Nothing, unless the message says that some proxies reject it: look at those, with `helio proxies --state rejecting`.";
const REJECTED: &str = "Proxies reject what was made of it; the message has Envoy's words. They go on with what they accepted before.";
const MEND: &str = "[Proxies reject something](../troubleshooting.md#proxies-reject-something)";
const RESOLVED: &str = "All that it refers to is there and may be used.";
const SEE_ACCEPTED: &str = "As `Accepted` says.";
const GRANT: &str = "Add a ReferenceGrant to that namespace, or refer to something in this one.";
const CLASHES: &str = "Another listener has the same port, protocol and hostname. Of one Gateway or ListenerSet all of them lose; a ListenerSet gives way to its Gateway and to older ones, and where Gateways share their proxies the younger Gateway to the older.";
const APART: &str = "Give one of them another port or hostname, or take it away.";
const FOREIGN_PROTOCOL: &str = "Another listener has the same port and another protocol, and only HTTP and HTTPS can share a port. Of one Gateway or ListenerSet all of them lose; a ListenerSet gives way to its Gateway and to older ones, and where Gateways share their proxies the younger Gateway to the older.";
const ANOTHER_PORT: &str = "Give one of them another port, or let both speak HTTP or HTTPS.";
const AUTHORITIES: &str = "Name a ConfigMap that has certificates in PEM as `ca.crt`.";
const KEY_PAIR: &str = "Name a Secret with a chain as `tls.crt` and its key as `tls.key`, in PEM; the message says what is wrong with this one.";

const ROLLED_BACK_MEANS: &str = "An operator rolled the configuration back with `helio snapshot rollback`. The message says to which snapshot, who did it and why. Changes of objects other than endpoints reach no proxy. Without a rollback there is no such condition.";
const RELEASE: &str = "`helio snapshot release NAMESPACE/NAME` lets the changes out, once what was wrong with them is fixed.";

macro_rules! reasons {
    ($($part:ident = $Part:ident {
        $($type:ident = $Type:ident {
            $($name:ident: $is_true:literal, $reason:expr, $means:expr, $remedy:expr;)*
        })*
    })*) => {
        $(pub mod $part {
            $(pub mod $type {
                use super::super::*;

                $(pub const $name: &Reason = &Reason {
                    part: StatusPart::$Part,
                    r#type: Type::$Type,
                    is_true: $is_true,
                    name: $reason,
                    means: $means,
                    remedy: $remedy,
                };)*
            })*
        })*

        /// In the order of the page.
        pub const ALL: &[&Reason] = &[$($($($part::$type::$name,)*)*)*];
    };
}

reasons! {
    gateway_class = GatewayClass {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "It is valid, and its Gateways are served here.",
                "";
            INVALID_PARAMETERS: false, "InvalidParameters",
                "Its `parametersRef` leads to nothing that can be used; the message says why. What runs for its Gateways goes on as it is.",
                "Name a [ProxyConfig](../proxies.md#proxyconfig) that is there, with its namespace.";
            UNSUPPORTED_VALUE: false, "UnsupportedValue", UNREADABLE, READABLE;
        }
    }

    gateway = Gateway {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "It is valid, and so are all its listeners.",
                "";
            SOME_LISTENERS_NOT_VALID: true, "ListenersNotValid",
                "Some listeners are not served, and the message names them. The others are.",
                "See the conditions of those listeners.";
            NO_LISTENER_VALID: false, "ListenersNotValid",
                "No listener can be served, neither its own nor one of a ListenerSet.",
                "See the conditions of the listeners.";
            INVALID_PARAMETERS: false, "InvalidParameters",
                "Its `infrastructure.parametersRef`, or the `parametersRef` of its class, leads to nothing that can be used; or its class merges \
                 its Gateways, and it has one of its own. The message says why. Its listeners are served, and what runs goes on as it is.",
                "Name a [ProxyConfig](../proxies.md#proxyconfig) that is there; or take the Gateway's own away.";
            UNSUPPORTED_ADDRESS: false, "UnsupportedAddress",
                "It asks for an address of another type than `IPAddress`. Nothing of it is served.",
                "Ask for an `IPAddress`, or take `addresses` away.";
            UNSUPPORTED_VALUE: false, "UnsupportedValue",
                "It has `defaultScope`, which is not supported, or `tls.backend` where its class merges its Gateways, and nothing of it is \
                 served. Or it cannot be read: a field has a value that this version does not know, and what was read last is in force. The \
                 message names the field.",
                "Take the value away, or install a version that knows it.";
        }
        programmed = Programmed {
            PROGRAMMED: true, "Programmed", ACKNOWLEDGED, A_FEW;
            PENDING: false, "Pending", NOT_YET, WAIT;
            NOT_SERVED: false, INVALID,
                "Nothing of it is served, as `Accepted` says; or its parameters cannot be used. If `Accepted` is true, proxies reject it, and the \
                 message has Envoy's words.",
                "Mend what `Accepted` names; or [Proxies reject something](../troubleshooting.md#proxies-reject-something).";
            ADDRESS_NOT_ASSIGNED: false, "AddressNotAssigned",
                "Its Service has no address yet, or is that of a Gateway whose name comes to the same.",
                "See the Service that the message names: a cluster without load balancers gives none. [ProxyConfig](../proxies.md#proxyconfig) has \
                 other types of Services.";
            ADDRESS_NOT_USABLE: false, "AddressNotUsable",
                "Its Service was not given an address that `spec.addresses` asks for.",
                "Ask for one that the load balancer can give, or for none. Only the first is asked for.";
        }
        held = Held {
            ROLLED_BACK: true, "RolledBack", ROLLED_BACK_MEANS, RELEASE;
        }
        resolved_refs = ResolvedRefs {
            RESOLVED_REFS: true, "ResolvedRefs",
                "The certificate that backends are shown can be used. Without `tls.backend.clientCertificateRef` there is no such condition.",
                "";
            INVALID_CLIENT_CERTIFICATE_REF: false, "InvalidClientCertificateRef",
                "`tls.backend.clientCertificateRef` leads to no certificate that Envoy would take. Backends are shown none.",
                KEY_PAIR;
            REF_NOT_PERMITTED: false, "RefNotPermitted",
                "`tls.backend.clientCertificateRef` leads to another namespace, and no ReferenceGrant there allows it. Backends are shown none.",
                GRANT;
        }
        insecure_frontend_validation_mode = InsecureFrontendValidationMode {
            CONFIGURATION_CHANGED: true, "ConfigurationChanged",
                "Clients without a valid certificate are served too, as `AllowInsecureFallback` in `tls.frontend` asks. Without that there is no \
                 such condition.",
                "Nothing if it is meant; else `AllowValidOnly`.";
        }
    }

    listener = Listener {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "It is valid.",
                "";
            UNSUPPORTED_PROTOCOL: false, "UnsupportedProtocol",
                "Its protocol is not HTTP, HTTPS or TCP.",
                "Choose one of them.";
            PORT_UNAVAILABLE: false, "PortUnavailable",
                "Its port is no port, is one of the proxies' own (19000 to 19002), or is bound by proxies at the same number as that of another \
                 listener: a port below 1024 is bound at the same plus 10000. Where Gateways share their proxies, 10001 to 11023 are for nobody.",
                "Choose another port.";
            UNSUPPORTED_VALUE: false, "UnsupportedValue",
                "Its `hostname` is none, it has `tls.options`, its protocol is TCP and it has a `hostname` or `tls`, or another listener beside it has the same name.",
                "Mend what the message names.";
            HOSTNAME_CONFLICT: false, "HostnameConflict", CLASHES, APART;
            PROTOCOL_CONFLICT: false, "ProtocolConflict", FOREIGN_PROTOCOL, ANOTHER_PORT;
            NO_VALID_CA_CERTIFICATE: false, "NoValidCACertificate",
                "`tls.frontend` of the Gateway asks for its clients to be verified, and no authority can be used. Nobody is served.",
                AUTHORITIES;
        }
        conflicted = Conflicted {
            NO_CONFLICTS: false, "NoConflicts",
                "No other listener is in its way.",
                "";
            HOSTNAME_CONFLICT: true, "HostnameConflict", CLASHES, APART;
            PROTOCOL_CONFLICT: true, "ProtocolConflict", FOREIGN_PROTOCOL, ANOTHER_PORT;
        }
        programmed = Programmed {
            PROGRAMMED: true, "Programmed", ACKNOWLEDGED, A_FEW;
            PENDING: false, "Pending", NOT_YET, WAIT;
            NOT_SERVED: false, INVALID,
                "It is not served: its own `Accepted` or `ResolvedRefs`, or `Accepted` of its Gateway, says why. If those are true, proxies reject it, \
                 and the message has Envoy's words.",
                "Mend what they name; or [Proxies reject something](../troubleshooting.md#proxies-reject-something).";
            HOSTNAME_CONFLICT: false, "HostnameConflict", SEE_ACCEPTED, APART;
            PROTOCOL_CONFLICT: false, "ProtocolConflict", SEE_ACCEPTED, ANOTHER_PORT;
        }
        resolved_refs = ResolvedRefs {
            RESOLVED_REFS: true, "ResolvedRefs", RESOLVED, "";
            INVALID_ROUTE_KINDS: false, "InvalidRouteKinds",
                "`allowedRoutes.kinds` has one that cannot attach to a listener of this protocol. The others can; without any, the listener is not served.",
                "Remove it: HTTPRoute and GRPCRoute can attach to HTTP and HTTPS, TCPRoute to TCP.";
            INVALID_CERTIFICATE_REF: false, "InvalidCertificateRef",
                "An HTTPS listener has no `tls.certificateRefs`, or passes TLS through, or one of them leads to no certificate that Envoy would take. \
                 It is served with the others; without any, not at all.",
                KEY_PAIR;
            REF_NOT_PERMITTED: false, "RefNotPermitted",
                "A certificate, or an authority for its clients, is in another namespace, and no ReferenceGrant there allows it. It is left out.",
                GRANT;
            INVALID_CA_CERTIFICATE_KIND: false, "InvalidCACertificateKind",
                "`tls.frontend` of the Gateway names an authority that is not a ConfigMap. It is left out.",
                AUTHORITIES;
            INVALID_CA_CERTIFICATE_REF: false, "InvalidCACertificateRef",
                "`tls.frontend` of the Gateway names an authority that is not there, or has no certificates. It is left out.",
                AUTHORITIES;
        }
    }

    listener_set = ListenerSet {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "It is valid, and so are all its listeners.",
                "";
            SOME_LISTENERS_NOT_VALID: true, "ListenersNotValid",
                "Some listeners are not served, and the message names them. The others are.",
                "See the conditions of those listeners.";
            NO_LISTENER_VALID: false, "ListenersNotValid",
                "No listener of it can be served.",
                "See the conditions of the listeners.";
            NOT_ALLOWED: false, "NotAllowed",
                "The Gateway lets nobody of this namespace add listeners.",
                "Have `allowedListeners` of the Gateway let the namespace in: without it, nobody is.";
            PARENT_NOT_ACCEPTED: false, "ParentNotAccepted",
                "Its Gateway is not accepted; the message says why. If the Gateway's parameters are the reason, its listeners are served all the same.",
                "Mend the Gateway.";
            UNSUPPORTED_VALUE: false, "UnsupportedValue", UNREADABLE, READABLE;
        }
        programmed = Programmed {
            PROGRAMMED: true, "Programmed", ACKNOWLEDGED, A_FEW;
            PENDING: false, "Pending", NOT_YET, WAIT;
            REJECTED_BY_PROXIES: false, INVALID, REJECTED, MEND;
            NO_LISTENER_VALID: false, "ListenersNotValid", SEE_ACCEPTED, "See the conditions of the listeners.";
            NOT_ALLOWED: false, "NotAllowed", SEE_ACCEPTED, "Have `allowedListeners` of the Gateway let the namespace in.";
            PARENT_NOT_ACCEPTED: false, "ParentNotAccepted", SEE_ACCEPTED, "Mend the Gateway.";
        }
        held = Held {
            ROLLED_BACK: true, "RolledBack", ROLLED_BACK_MEANS, RELEASE;
        }
    }

    route = Route {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "It is attached to a listener of this parent.",
                "";
            NO_MATCHING_PARENT: false, "NoMatchingParent",
                "The parent has no listener with the `sectionName` and the `port` of the `parentRef`.",
                "Mend the `parentRef`.";
            NOT_ALLOWED_BY_LISTENERS: false, "NotAllowedByListeners",
                "Those listeners let no route of this kind and namespace in, or are not valid themselves.",
                "See `allowedRoutes` of the listener, which lets in its own namespace unless said, and its conditions.";
            NO_MATCHING_LISTENER_HOSTNAME: false, "NoMatchingListenerHostname",
                "No hostname of the route is one of the listener's.",
                "Compare `hostnames` of the route and `hostname` of the listener.";
            UNSUPPORTED_VALUE: false, "UnsupportedValue",
                "It asks for something that is not supported, or that Envoy would reject, and nothing of it is served. Or it cannot be read: a field has a \
                 value that this version does not know, and what was read last is in force. The message names the rule or the field.",
                "Mend what the message names; or install a version that knows it.";
            TOO_LARGE: false, "TooLarge",
                "It would take more room in route tables than a route or a namespace may have, or than the namespace's share of a table; or the namespace would \
                 have more regular expressions for a hostname than Envoy tries in reasonable time. Nothing of it is served there. The youngest routes of the namespace are refused first.",
                "Use fewer matches, hostnames and header values, or regular expressions that repeat less; or raise [the limit](../security.md#budgets).";
        }
        programmed = Programmed {
            REJECTED_BY_PROXIES: false, INVALID,
                "Proxies reject the table or the listener that it is in; the message has Envoy's words. They go on with what they accepted before. Otherwise there is no \
                 such condition.",
                MEND;
            LEFT_OUT: false, "LeftOut",
                "More proxies reject it than accept it, so the tables are published without it: its requests are answered with 500, and matches that \
                 Envoy itself rejects are dropped. The message has Envoy's words. All other routes are served.",
                "Fix what Envoy names. The route is tried again when it changes, or when its annotation `heliograph.dev/retry` does.";
            CLOSED: false, "ClosedByPolicy",
                "A policy that protects it, or its Gateway or listener, cannot be enforced; the message names the policy, and the rules where it is not all of them. \
                 Their requests are answered with 500, calls of gRPC with UNAVAILABLE, and connections of TCPRoutes are closed: to serve them unprotected would be worse.",
                "See the conditions of the policy; fix or delete it.";
            OLDER_ROUTE: false, "OlderRoute",
                "A TCPRoute that is attached to the same listener is older, and has all connections: nothing in a connection says whose it is. \
                 The message names the listeners.",
                "Delete one of the two, or attach them to different listeners.";
            TOO_LARGE: false, "TooLarge",
                "It is for hostnames that other namespaces name, too, and its copies there take more than the namespace's share of a route table. It is \
                 served at all other hostnames; at those of the namespaces in the message it is not.",
                "Give the route hostnames, or fewer matches and header values; or raise [the limit](../security.md#budgets).";
        }
        resolved_refs = ResolvedRefs {
            RESOLVED_REFS: true, "ResolvedRefs", RESOLVED, "";
            BACKEND_NOT_FOUND: false, "BackendNotFound",
                "A Service that it refers to is not there, has no such port, or has no endpoints because it is an ExternalName. Its share of \
                 requests is answered with 500, calls of gRPC with UNAVAILABLE, and connections of a TCPRoute are closed.",
                "Mend the `backendRef`, or make the Service.";
            REF_NOT_PERMITTED: false, "RefNotPermitted",
                "A backend is in another namespace, and no ReferenceGrant there allows it. Its share of requests is answered as above.",
                GRANT;
            INVALID_KIND: false, "InvalidKind",
                "A backend is of a kind that is not supported. Its share of requests is answered as above.",
                "Refer to a Service.";
        }
    }

    backend_tls_policy = BackendTlsPolicy {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "It holds.",
                "";
            CONFLICTED: false, "Conflicted",
                "Another policy, which the message names, has the same target and is older. That one holds.",
                "Take one of them away, or give them different ports as `sectionName`.";
            TARGET_NOT_FOUND: false, "TargetNotFound",
                "A Service that it is about is not there, or has no port of that name.",
                "Mend `targetRefs`.";
            NOT_UNDERSTOOD: false, INVALID,
                "It has `options`, a name that is none, or names no authority that can be trusted; the message says which. Requests to its backends are \
                 answered with 500, since to speak to them otherwise would be worse.",
                "Mend what the message names.";
            NO_VALID_CA_CERTIFICATE: false, "NoValidCACertificate",
                "None of its authorities can be used. Requests to its backends are answered with 500.",
                AUTHORITIES;
            UNSUPPORTED_VALUE: false, "UnsupportedValue", UNREADABLE, READABLE;
        }
        resolved_refs = ResolvedRefs {
            RESOLVED_REFS: true, "ResolvedRefs", RESOLVED, "";
            INVALID_KIND: false, "InvalidKind",
                "One of `caCertificateRefs` is not a ConfigMap. It is left out.",
                AUTHORITIES;
            INVALID_CA_CERTIFICATE_REF: false, "InvalidCACertificateRef",
                "One of `caCertificateRefs` leads to a ConfigMap that is not there, or has no certificates. It is left out.",
                AUTHORITIES;
        }
    }

    policy = Policy {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "It is in force, wherever no more specific policy of its kind replaces it.",
                "";
            INVALID: false, "Invalid",
                "It has a field or a value that is not supported or cannot be meant; the message names it by its path. Nothing of it is in force.",
                "Fix or remove the field that the message names ([Policies](../policies.md)).";
            CONFLICTED: false, "Conflicted",
                "Another policy of its kind, which the message names, has the same target and is older. That one is in force there.",
                "Delete one of them, or have them target different objects.";
            TARGET_NOT_FOUND: false, "TargetNotFound",
                "Something that it targets does not exist: an object, a listener, or a rule with that name. It is in force for its other targets.",
                "Fix `targetRefs`, or create what they name.";
            NO_TARGETS: false, "NoTargets",
                "Its `targetSelectors` select no object of its namespace, so it is in force nowhere.",
                "Compare them with the labels of the objects that you mean.";
        }
    }

    view_policy = ViewPolicy {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "It holds. The message says for how many of the listed proxies it is.",
                "";
            TARGET_NOT_FOUND: false, "TargetNotFound",
                "Its `targetRef` is no Gateway of this namespace that is served here. Nothing of it holds.",
                "Mend `targetRef`.";
            NOT_UNDERSTOOD: false, INVALID,
                "Something in it cannot be meant; the message names it. Nothing of it holds, and ports of listeners that it names with `only` are served to nobody, unless it is about a class.",
                "Mend what the message names ([Views](../views.md#rules)).";
            UNSUPPORTED_VALUE: false, "UnsupportedValue", UNREADABLE, READABLE;
        }
        programmed = Programmed {
            REJECTED_BY_PROXIES: false, INVALID,
                "Proxies reject what it makes of a resource; the message has Envoy's words. They go on with what they accepted before. Otherwise there is no \
                 such condition.",
                "Mend the overlay; or [Proxies reject something](../troubleshooting.md#proxies-reject-something).";
            LEFT_OUT: false, "LeftOut",
                "More proxies reject what it makes of a resource than accept it, so its overlays are left out; the message has Envoy's words. Its other \
                 rules hold.",
                "Fix what Envoy names. The policy is tried again when it changes, or when its annotation `heliograph.dev/retry` does.";
        }
        resolved_refs = ResolvedRefs {
            RESOLVED_REFS: true, "ResolvedRefs",
                "All that it names is there.",
                "";
            INVALID_OVERLAY: false, "InvalidOverlay",
                "An overlay finds no such resource, or cannot be laid over it. Its other rules hold.",
                "Compare it with what `helio translate` prints.";
        }
    }
}
