{{- /*
What the operator may do in the namespaces that it looks after: a verb stands here because a call in the code needs it.

  resource               verbs               phase
  mcpgroups              list watch          start: is the kind there; dereference: the groups
                         patch               hooks: a replica without the lease leaves a mark; only with several replicas
  mcpgroups/status       patch               status
  mcpgroups/finalizers   update              apply: children name their owner with blockOwnerDeletion; asked for where the
                                             cluster runs OwnerReferencesPermissionEnforcement
  secrets, configmaps    get                 dereference: keys, credentials, values, what is remembered, each by its name
  secrets                list watch          wake: metadata, of all: groups refer to people's. RBAC has no right to that alone
  children               list watch          wake: metadata of those labelled as ours, Deployments whole
  children               get                 apply: metadata, so that an object of somebody else is not taken over
  children               create patch        apply: server-side apply, which creates what is not there
  children               delete              apply: what is no child any more
  jobs                   get create patch    deploy: found running, or made
                         list watch          deploy: how it ends; which ones are left over
                         delete              deploy: one that failed, is in the way, or is old
  pods                   list watch          deploy: why a job ended; reload: which pods to tell; status: what holds pods up
  events (core)          list                deploy: why a job has no pod
  events (events.k8s.io) create patch        status: on transitions; hooks: one came in

Children: Secrets, ConfigMaps, ServiceAccounts, Services, NetworkPolicies, PodDisruptionBudgets, Deployments, autoscalers.
No escalate, bind, impersonate, no exec, no logs, no nodes, no namespaces, no making of pods.
*/ -}}
{{- define "ramen.rules" -}}
- apiGroups: [ramen.dev]
  resources: [mcpgroups]
  verbs: [list, watch{{ if and .Values.webhooks.enabled (gt (int .Values.replicas) 1) }}, patch{{ end }}]
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
  verbs: [list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [list]
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

{{- /*
The operator, in the namespace of the gateways, where it leaves one Secret for each group:

  secrets   list watch     wake: metadata of those that it left
            get            apply: metadata, so that an object of somebody else is not taken over
            create patch   apply
            delete         of a group that is gone
*/ -}}
{{- define "ramen.forGatewaysRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}

{{- /*
What a gateway may do in the namespaces whose groups it serves. It reads no Secret there.

  mcpgroups              list watch     who may call, and from where
  endpointslices         list watch     where the workers are
  mcpgroups              get patch      operations: only where they are served
  events (core)          list           operations: what happened
  events (events.k8s.io) create         operations: who asked for what
*/ -}}
{{- define "ramen.gatewayRules" -}}
- apiGroups: [ramen.dev]
  resources: [mcpgroups]
  verbs: [list, watch{{ if or .Values.gateway.operations.secretName .Values.gateway.operations.rules }}, get, patch{{ end }}]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{ if or .Values.gateway.operations.secretName .Values.gateway.operations.rules }}
- apiGroups: [""]
  resources: [events]
  verbs: [list]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{ end }}
{{- end }}

{{- /*
In its own namespace:

  secrets   list watch   digests of callers' keys, and its own key at the workers
*/ -}}
{{- define "ramen.gatewayOwnRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [list, watch]
{{- end }}
