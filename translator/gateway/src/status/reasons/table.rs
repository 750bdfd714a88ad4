//! The table of conditions: part, type, then a row for each reason, with its status, its meaning and the remedy.

use super::{Reason, StatusPart, Type};

/// The reason of what is not served. On `Programmed` alone, with nothing else wrong, proxies are who refuses.
pub(super) const INVALID: &str = "Invalid";

const UNREADABLE: &str = "The object cannot be decoded: a field has a value that this version does not know. The message names the field. The version that was read last stays in force.";
const READABLE: &str =
    "Change the value back, or install a version of Heliograph that supports it.";
const NOT_YET: &str =
    "No proxy has acknowledged this generation yet. The message says what is missing.";
const WAIT: &str =
    "[What `Programmed` means](../status.md#what-programmed-means) has a row for each message.";
const ACKNOWLEDGED: &str = "At least one proxy has acknowledged this generation. The message has the number of proxies that have it.";
const A_FEW: &str = "Nothing, unless the message says that some proxies reject it. List those with `helio proxies --state rejecting`.";
const REJECTED: &str = "Proxies reject the configuration that was generated from it. The message has Envoy's error. The proxies keep the configuration that they accepted before.";
const FIX: &str = "[Proxies reject something](../troubleshooting.md#proxies-reject-something)";
const RESOLVED: &str = "All objects that it refers to exist and can be used.";
const SEE_ACCEPTED: &str = "See the condition `Accepted`.";
const GRANT: &str = "Create a ReferenceGrant in that namespace, or refer to an object in this one.";
const CLASHES: &str = "Another listener has the same port, protocol and hostname. If both are in the same Gateway or ListenerSet, neither is served. Otherwise only one is served: the Gateway's before a ListenerSet's, the older ListenerSet's before the younger's and, where Gateways share their proxies, the older Gateway's.";
const APART: &str = "Give one of the listeners another port or hostname, or remove it.";
const FOREIGN_PROTOCOL: &str = "Another listener has the same port and another protocol. Only HTTP and HTTPS can share a port. If both are in the same Gateway or ListenerSet, neither is served. Otherwise only one is served: the Gateway's before a ListenerSet's, the older ListenerSet's before the younger's and, where Gateways share their proxies, the older Gateway's.";
const ANOTHER_PORT: &str = "Give one of the listeners another port, or use HTTP or HTTPS for both.";
const AUTHORITIES: &str = "Refer to a ConfigMap with a CA bundle in PEM in the key `ca.crt`.";
const KEY_PAIR: &str = "Refer to a Secret with a certificate chain in `tls.crt` and its private key in `tls.key`, both in PEM. The message says what is wrong with the current one.";

const ROLLED_BACK_MEANS: &str = "An operator rolled the configuration back with `helio snapshot rollback`. The message has the snapshot, the operator and the reason. Until the release, proxies receive changes of endpoints only. The condition exists only during a rollback.";
const RELEASE: &str =
    "Fix the objects, then run `helio snapshot release NAMESPACE/NAME` to publish the changes.";

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
                "The GatewayClass is valid, and Heliograph serves its Gateways.",
                "";
            INVALID_PARAMETERS: false, "InvalidParameters",
                "Its `parametersRef` cannot be used; the message says why. The Envoys of its Gateways continue unchanged.",
                "Refer to an existing [ProxyConfig](../proxies.md#proxyconfig), with its namespace.";
            UNSUPPORTED_VALUE: false, "UnsupportedValue", UNREADABLE, READABLE;
        }
    }

    gateway = Gateway {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "It is valid, and all its listeners are valid.",
                "";
            SOME_LISTENERS_NOT_VALID: true, "ListenersNotValid",
                "Some listeners are not served; the message names them. The others are served.",
                "Read the conditions of those listeners.";
            NO_LISTENER_VALID: false, "ListenersNotValid",
                "No listener can be served, neither of the Gateway nor of a ListenerSet.",
                "Read the conditions of the listeners.";
            INVALID_PARAMETERS: false, "InvalidParameters",
                "Its `infrastructure.parametersRef` or the `parametersRef` of its class cannot be used, or the Gateway has parameters although its \
                 class merges its Gateways. The message says why. Its listeners are served, and its Envoys continue unchanged.",
                "Refer to an existing [ProxyConfig](../proxies.md#proxyconfig), or remove the Gateway's `parametersRef`.";
            UNSUPPORTED_ADDRESS: false, "UnsupportedAddress",
                "It requests an address of a type other than `IPAddress`. No listener is served.",
                "Request an `IPAddress`, or remove `addresses`.";
            UNSUPPORTED_VALUE: false, "UnsupportedValue",
                "It uses `defaultScope`, which is not supported, or `tls.backend` in a class that merges its Gateways; then no listener is served. Or \
                 the object cannot be decoded, because a field has a value that this version does not know; then the version that was read last \
                 stays in force. The message names the field.",
                "Remove the value, or install a version of Heliograph that supports it.";
        }
        programmed = Programmed {
            PROGRAMMED: true, "Programmed", ACKNOWLEDGED, A_FEW;
            PENDING: false, "Pending", NOT_YET, WAIT;
            NOT_SERVED: false, INVALID,
                "No listener is served, for the reason in `Accepted`, or its parameters cannot be used. If `Accepted` is true, proxies reject its \
                 configuration, and the message has Envoy's error.",
                "Fix the problem that `Accepted` names. If `Accepted` is true: [Proxies reject something](../troubleshooting.md#proxies-reject-something).";
            ADDRESS_NOT_ASSIGNED: false, "AddressNotAssigned",
                "Its Service has no address yet, or belongs to another Gateway for which the same name is generated.",
                "Check the Service that the message names. A cluster without load balancers assigns no address; choose another type of Service in a \
                 [ProxyConfig](../proxies.md#proxyconfig).";
            ADDRESS_NOT_USABLE: false, "AddressNotUsable",
                "Its Service did not get an address that `spec.addresses` requests.",
                "Request an address that the load balancer can assign, or none. Heliograph requests only the first one of the list.";
        }
        held = Held {
            ROLLED_BACK: true, "RolledBack", ROLLED_BACK_MEANS, RELEASE;
        }
        resolved_refs = ResolvedRefs {
            RESOLVED_REFS: true, "ResolvedRefs",
                "The client certificate for backends can be used. The condition exists only with `tls.backend.clientCertificateRef`.",
                "";
            INVALID_CLIENT_CERTIFICATE_REF: false, "InvalidClientCertificateRef",
                "`tls.backend.clientCertificateRef` refers to no certificate that Envoy accepts. Envoys present no client certificate to backends.",
                KEY_PAIR;
            REF_NOT_PERMITTED: false, "RefNotPermitted",
                "`tls.backend.clientCertificateRef` refers to another namespace, and no ReferenceGrant there allows it. Envoys present no client certificate to backends.",
                GRANT;
        }
        insecure_frontend_validation_mode = InsecureFrontendValidationMode {
            CONFIGURATION_CHANGED: true, "ConfigurationChanged",
                "Clients without a valid certificate are served too, because `tls.frontend` has the mode `AllowInsecureFallback`. The condition exists \
                 only in that mode.",
                "Nothing, if that is intended. Otherwise set the mode `AllowValidOnly`.";
        }
    }

    listener = Listener {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "The listener is valid.",
                "";
            UNSUPPORTED_PROTOCOL: false, "UnsupportedProtocol",
                "The protocol is not HTTP, HTTPS or TCP.",
                "Use HTTP, HTTPS or TCP.";
            PORT_UNAVAILABLE: false, "PortUnavailable",
                "The port is invalid, is one of the proxies' own ports (19000 to 19002), or conflicts with another listener inside the proxy: proxies \
                 bind a port below 1024 as that number plus 10000. Where Gateways share their proxies, no listener may use 10001 to 11023.",
                "Choose another port.";
            UNSUPPORTED_VALUE: false, "UnsupportedValue",
                "The `hostname` is invalid, the listener has `tls.options`, it is a TCP listener with `hostname` or `tls`, or another listener of the same object has the same name.",
                "Fix the field that the message names.";
            HOSTNAME_CONFLICT: false, "HostnameConflict", CLASHES, APART;
            PROTOCOL_CONFLICT: false, "ProtocolConflict", FOREIGN_PROTOCOL, ANOTHER_PORT;
            NO_VALID_CA_CERTIFICATE: false, "NoValidCACertificate",
                "`tls.frontend` of the Gateway requires client certificates, and none of its CA bundles can be used. The listener serves no client.",
                AUTHORITIES;
        }
        conflicted = Conflicted {
            NO_CONFLICTS: false, "NoConflicts",
                "No other listener conflicts with this one.",
                "";
            HOSTNAME_CONFLICT: true, "HostnameConflict", CLASHES, APART;
            PROTOCOL_CONFLICT: true, "ProtocolConflict", FOREIGN_PROTOCOL, ANOTHER_PORT;
        }
        programmed = Programmed {
            PROGRAMMED: true, "Programmed", ACKNOWLEDGED, A_FEW;
            PENDING: false, "Pending", NOT_YET, WAIT;
            NOT_SERVED: false, INVALID,
                "The listener is not served. Its conditions `Accepted` and `ResolvedRefs`, or `Accepted` of its Gateway, say why. If all of these are \
                 true, proxies reject it, and the message has Envoy's error.",
                "Fix the problem that those conditions name. If they are true: [Proxies reject something](../troubleshooting.md#proxies-reject-something).";
            HOSTNAME_CONFLICT: false, "HostnameConflict", SEE_ACCEPTED, APART;
            PROTOCOL_CONFLICT: false, "ProtocolConflict", SEE_ACCEPTED, ANOTHER_PORT;
        }
        resolved_refs = ResolvedRefs {
            RESOLVED_REFS: true, "ResolvedRefs", RESOLVED, "";
            INVALID_ROUTE_KINDS: false, "InvalidRouteKinds",
                "`allowedRoutes.kinds` has a kind that cannot attach to a listener of this protocol. The other kinds can. If no kind is left, the listener is not served.",
                "Remove that kind. HTTPRoute and GRPCRoute can attach to HTTP and HTTPS, TCPRoute to TCP.";
            INVALID_CERTIFICATE_REF: false, "InvalidCertificateRef",
                "An HTTPS listener has no `tls.certificateRefs`, or has the mode `Passthrough`, or one of the references leads to no certificate that \
                 Envoy accepts. The listener is served with its other certificates; without any, it is not served.",
                KEY_PAIR;
            REF_NOT_PERMITTED: false, "RefNotPermitted",
                "A certificate, or a CA bundle for client certificates, is in another namespace, and no ReferenceGrant there allows the reference. The listener does not use it.",
                GRANT;
            INVALID_CA_CERTIFICATE_KIND: false, "InvalidCACertificateKind",
                "`tls.frontend` of the Gateway refers to a CA bundle that is not a ConfigMap. The listener does not use it.",
                AUTHORITIES;
            INVALID_CA_CERTIFICATE_REF: false, "InvalidCACertificateRef",
                "`tls.frontend` of the Gateway refers to a ConfigMap that does not exist or has no certificates. The listener does not use it.",
                AUTHORITIES;
        }
    }

    listener_set = ListenerSet {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "It is valid, and all its listeners are valid.",
                "";
            SOME_LISTENERS_NOT_VALID: true, "ListenersNotValid",
                "Some listeners are not served; the message names them. The others are served.",
                "Read the conditions of those listeners.";
            NO_LISTENER_VALID: false, "ListenersNotValid",
                "No listener of the ListenerSet can be served.",
                "Read the conditions of the listeners.";
            NOT_ALLOWED: false, "NotAllowed",
                "The Gateway does not allow ListenerSets from this namespace.",
                "Allow the namespace in `allowedListeners` of the Gateway. Without that field, the Gateway allows no ListenerSet.";
            PARENT_NOT_ACCEPTED: false, "ParentNotAccepted",
                "Its Gateway is not accepted; the message says why. If the reason is the Gateway's parameters, the listeners are served nevertheless.",
                "Fix the Gateway.";
            UNSUPPORTED_VALUE: false, "UnsupportedValue", UNREADABLE, READABLE;
        }
        programmed = Programmed {
            PROGRAMMED: true, "Programmed", ACKNOWLEDGED, A_FEW;
            PENDING: false, "Pending", NOT_YET, WAIT;
            REJECTED_BY_PROXIES: false, INVALID, REJECTED, FIX;
            NO_LISTENER_VALID: false, "ListenersNotValid", SEE_ACCEPTED, "Read the conditions of the listeners.";
            NOT_ALLOWED: false, "NotAllowed", SEE_ACCEPTED, "Allow the namespace in `allowedListeners` of the Gateway.";
            PARENT_NOT_ACCEPTED: false, "ParentNotAccepted", SEE_ACCEPTED, "Fix the Gateway.";
        }
        held = Held {
            ROLLED_BACK: true, "RolledBack", ROLLED_BACK_MEANS, RELEASE;
        }
    }

    route = Route {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "The route is attached to a listener of this parent.",
                "";
            NO_MATCHING_PARENT: false, "NoMatchingParent",
                "The parent has no listener with the `sectionName` and the `port` of the `parentRef`.",
                "Fix the `parentRef`.";
            NOT_ALLOWED_BY_LISTENERS: false, "NotAllowedByListeners",
                "The listeners that the `parentRef` names do not allow routes of this kind or from this namespace, or they are not valid.",
                "Check the listener's conditions and its `allowedRoutes`. By default, a listener allows routes from its own namespace only.";
            NO_MATCHING_LISTENER_HOSTNAME: false, "NoMatchingListenerHostname",
                "No hostname of the route matches the listener's hostname.",
                "Compare `hostnames` of the route and `hostname` of the listener.";
            UNSUPPORTED_VALUE: false, "UnsupportedValue",
                "Either the route uses something that is not supported or that Envoy would reject: no part of it is served. Or the object cannot be \
                 decoded, because a field has a value that this version does not know: then the version that was read last stays in force, and the \
                 message begins with `The object cannot be decoded`. The message names the rule or the field.",
                "Fix the field that the message names, or install a version of Heliograph that supports it.";
            TOO_LARGE: false, "TooLarge",
                "The route would need more space in route tables than a route or a namespace may use, or than the namespace's share of a table. Or the \
                 namespace would have more regular expressions for one hostname than Envoy can match in reasonable time. The route is not served \
                 at this parent. The youngest routes of a namespace are rejected first.",
                "Use fewer matches, hostnames and header values, or regular expressions with fewer repetitions; or raise [the limit](../security.md#budgets).";
        }
        programmed = Programmed {
            REJECTED_BY_PROXIES: false, INVALID,
                "Proxies reject the route table or the listener that contains the route. The message has Envoy's error. The proxies keep what they \
                 accepted before. The condition exists only while this is so.",
                FIX;
            LEFT_OUT: false, "LeftOut",
                "More proxies reject the route than accept it, so it is left out of the route tables: its requests get 500. Of a match that Envoy \
                 itself rejects, the part that any Envoy can hold gets 500. The message has Envoy's error. All other routes are served.",
                "Fix the field that Envoy's error names. Heliograph tries the route again when it changes, or when its annotation `heliograph.dev/retry` changes.";
            CLOSED: false, "ClosedByPolicy",
                "A policy that protects the route, its listener or its Gateway cannot be enforced, so the route is closed. The message names the \
                 policy and, if not all rules are closed, the rules. Requests get 500, gRPC calls get UNAVAILABLE, and connections of TCPRoutes \
                 are closed.",
                "Read the conditions of the policy, then fix or delete it.";
            OLDER_ROUTE: false, "OlderRoute",
                "An older TCPRoute is attached to the same listener and receives all its connections, because a connection contains nothing to choose \
                 a route by. The message names the listeners.",
                "Delete one of the two routes, or attach them to different listeners.";
            TOO_LARGE: false, "TooLarge",
                "The route also applies to hostnames of other namespaces, and its copies there need more than the namespace's share of a route table. \
                 It is not served at the hostnames of the namespaces in the message. It is served at all other hostnames.",
                "Set hostnames in the route, or use fewer matches and header values; or raise [the limit](../security.md#budgets).";
        }
        resolved_refs = ResolvedRefs {
            RESOLVED_REFS: true, "ResolvedRefs", RESOLVED, "";
            BACKEND_NOT_FOUND: false, "BackendNotFound",
                "A Service in a `backendRef` does not exist, does not have the port, or has no endpoints because its type is ExternalName. The \
                 backend's share of requests gets 500, gRPC calls get UNAVAILABLE, and connections of a TCPRoute are closed.",
                "Fix the `backendRef`, or create the Service.";
            REF_NOT_PERMITTED: false, "RefNotPermitted",
                "A backend is in another namespace, and no ReferenceGrant there allows the reference. Its share of requests fails as above.",
                GRANT;
            INVALID_KIND: false, "InvalidKind",
                "A backend is of a kind that is not supported. Its share of requests fails as above.",
                "Refer to a Service.";
        }
    }

    backend_tls_policy = BackendTlsPolicy {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "The policy is in force.",
                "";
            CONFLICTED: false, "Conflicted",
                "An older policy has the same target and is in force there. The message names it.",
                "Delete one of the policies, or set different ports as `sectionName`.";
            TARGET_NOT_FOUND: false, "TargetNotFound",
                "A Service in `targetRefs` does not exist, or has no port with that name.",
                "Fix `targetRefs`.";
            NOT_UNDERSTOOD: false, INVALID,
                "The policy has `options`, an invalid hostname or subject name, or no CA that can be trusted; the message says which. Requests to its \
                 backends get 500, because connections without this verification would not be safe.",
                "Fix the field that the message names.";
            NO_VALID_CA_CERTIFICATE: false, "NoValidCACertificate",
                "None of its CA bundles can be used. Requests to its backends get 500.",
                AUTHORITIES;
        }
        resolved_refs = ResolvedRefs {
            RESOLVED_REFS: true, "ResolvedRefs", RESOLVED, "";
            INVALID_KIND: false, "InvalidKind",
                "One of `caCertificateRefs` is not a ConfigMap. The policy does not use it.",
                AUTHORITIES;
            INVALID_CA_CERTIFICATE_REF: false, "InvalidCACertificateRef",
                "One of `caCertificateRefs` refers to a ConfigMap that does not exist or has no certificates. The policy does not use it.",
                AUTHORITIES;
        }
    }

    policy = Policy {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "The policy is in force, except where a more specific policy of its kind replaces it.",
                "";
            INVALID: false, "Invalid",
                "The policy has a field or a value that is unsupported or invalid; the message names the field by its path. No part of a BackendTrafficPolicy is then in force, and a less specific one applies. A SecurityPolicy closes its targets: requests get 500.",
                "Fix or remove the field that the message names ([Policies](../policies.md)). No field of a SecurityPolicy is supported yet: delete the policy to open its targets.";
            CONFLICTED: false, "Conflicted",
                "An older policy of the same kind has the same target and is in force there. The message names it.",
                "Delete one of the policies, or give them different targets.";
            TARGET_NOT_FOUND: false, "TargetNotFound",
                "A target does not exist: an object, a listener, or a rule with that name. The policy is in force for its other targets.",
                "Fix `targetRefs`, or create the missing object.";
            NO_TARGETS: false, "NoTargets",
                "Its `targetSelectors` select no object, so the policy is in force nowhere.",
                "Compare the selectors with the labels of the objects. In another namespace, a ReferenceGrant must allow them.";
        }
    }

    view_policy = ViewPolicy {
        accepted = Accepted {
            ACCEPTED: true, "Accepted",
                "The policy is in force. The message has the number of proxies in the inventory that it selects.",
                "";
            TARGET_NOT_FOUND: false, "TargetNotFound",
                "Its `targetRef` is neither a Gateway in this namespace that Heliograph serves with Envoys of its own, nor a GatewayClass whose shared Envoys run in this namespace. No part of the policy is in force.",
                "Fix `targetRef`.";
            NOT_UNDERSTOOD: false, INVALID,
                "The policy has an invalid field; the message names it. No part of the policy is in force. Unless the target is a GatewayClass, the ports of listeners that it names with `only` are served to no proxy.",
                "Fix the field that the message names ([Views](../views.md#rules)).";
        }
        programmed = Programmed {
            REJECTED_BY_PROXIES: false, INVALID,
                "Proxies reject a resource with an overlay of this policy. The message has Envoy's error. The proxies keep what they accepted before. \
                 The condition exists only while this is so.",
                "Fix the overlay, or see [Proxies reject something](../troubleshooting.md#proxies-reject-something).";
            LEFT_OUT: false, "LeftOut",
                "More proxies reject a resource with an overlay of this policy than accept it, so its overlays are left out. The message has Envoy's \
                 error. Its other rules are in force.",
                "Fix the field that Envoy's error names. Heliograph tries the policy again when it changes, or when its annotation `heliograph.dev/retry` changes.";
        }
        resolved_refs = ResolvedRefs {
            RESOLVED_REFS: true, "ResolvedRefs",
                "All resources that the policy names exist.",
                "";
            INVALID_OVERLAY: false, "InvalidOverlay",
                "An overlay names a resource that does not exist, or cannot be applied to it. Its clients are served the resource without the overlay, even if it was meant to deny access. The other rules of the policy are in force.",
                "Compare the overlay with the resource that `helio translate` prints. In a cluster: `helio snapshot show NAMESPACE/NAME -o yaml`.";
        }
    }
}
