{{- /*
What the operator may do in the namespaces that it looks after: a verb stands here because a call in the code needs it.

  resource                 verbs                                   phase
  mcpgroups                get list watch                          dereference: the groups
  mcpgroups/status         patch                                   status
  mcpgroups/finalizers     update                                  apply: children that name their owner, where the cluster
                                                                   demands it (OwnerReferencesPermissionEnforcement)
  secrets                  get                                     dereference: keys, credentials, values by name
  secrets, configmaps      list watch                              wake: of metadata; RBAC knows no such thing as metadata
  children                 list watch                              wake: a child was edited; sweep: what is no child any more
  children                 create patch                            apply: server-side apply, which creates what is not there
  children                 delete                                  sweep
  pods                     get list watch                          status, reload: which pods serve; why a deploy ended
  events                   create patch                            events on transitions

No escalate, bind, impersonate, no exec, no logs, no nodes, no namespaces.
*/ -}}
{{- define "ramen.rules" -}}
- apiGroups: [ramen.dev]
  resources: [mcpgroups]
  verbs: [get, list, watch]
- apiGroups: [ramen.dev]
  resources: [mcpgroups/status]
  verbs: [patch]
- apiGroups: [ramen.dev]
  resources: [mcpgroups/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [secrets, configmaps, serviceaccounts, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{- /*
In its own namespace, whatever the scope:

  leases   create; get update of its own lease   lease
*/ -}}
{{- define "ramen.ownRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "ramen.fullname" . }}-operator]
  verbs: [get, update]
{{- end }}
