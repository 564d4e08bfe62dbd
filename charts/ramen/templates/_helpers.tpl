{{- /* `ramen` for a release of that name. At most 40 letters, so that every object can add a word. */ -}}
{{- define "ramen.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains "ramen" .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-ramen" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* The policies that the operator makes for workers let in pods by name and component: never another name. */ -}}
{{- define "ramen.selector" -}}
app.kubernetes.io/name: ramen
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "ramen.labels" -}}
{{ include "ramen.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "ramen.account" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "ramen.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* An image: by digest when there is one, else by tag. */ -}}
{{- define "ramen.image" -}}
{{- if .digest }}{{ printf "%s@%s" .repository .digest }}{{ else }}{{ printf "%s:%s" .repository .tag }}{{ end }}
{{- end }}

{{- /* The namespaces to look after, separated by commas; empty for all. */ -}}
{{- define "ramen.namespaces" -}}
{{- if eq .Values.scope "Namespaced" }}
{{- default (list .Release.Namespace) .Values.watchNamespaces | uniq | sortAlpha | join "," }}
{{- end }}
{{- end }}

{{- /* Where pods reach one of the Services: by name, or by its fixed address. */ -}}
{{- define "ramen.host" -}}
{{- $root := index . 0 }}{{ $service := index . 1 }}
{{- $address := (index $root.Values.services $service).clusterIP }}
{{- if contains ":" $address }}{{ printf "[%s]" $address }}
{{- else if $address }}{{ $address }}
{{- else }}{{ printf "%s-%s.%s.svc" (include "ramen.fullname" $root) $service $root.Release.Namespace }}
{{- end }}
{{- end }}

{{- /* What the restricted Pod Security Standard asks for, and a root that cannot be written. */ -}}
{{- define "ramen.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "ramen.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- /* What pods of the chart may reach. */ -}}
{{- define "ramen.egress" -}}
# Names. A resolver on the node has an address that is left out below, hence no `to`.
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
# The API server, git hosts, workers.
- to:
    {{- range $cidr := .Values.networkPolicy.egress.cidrs }}
    - ipBlock:
        cidr: {{ $cidr | quote }}
        {{- $six := contains ":" $cidr }}
        {{- $except := list }}
        {{- /* `except` must lie within `cidr`: it is only added to the ranges that hold everything. */}}
        {{- if hasSuffix "/0" $cidr }}
        {{- range $.Values.networkPolicy.egress.except }}
        {{- if eq $six (contains ":" .) }}{{ $except = append $except . }}{{ end }}
        {{- end }}
        {{- end }}
        {{- with $except }}
        except:
          {{- toYaml . | nindent 10 }}
        {{- end }}
    {{- end }}
  {{- with .Values.networkPolicy.egress.ports }}
  ports:
    {{- range . }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
  {{- end }}
{{- end }}

{{- /* Combinations that cannot work, each refused in words. */ -}}
{{- define "ramen.check" -}}
{{- if and (eq .Values.scope "Cluster") .Values.watchNamespaces }}
{{- fail "watchNamespaces is for scope Namespaced: with scope Cluster every namespace is looked after" }}
{{- end }}
{{- with .Values.webhooks }}
{{- if and .enabled (not .secretName) }}
{{- fail "webhooks.enabled needs webhooks.secretName: without a receiver every hook is refused" }}
{{- end }}
{{- if and .enabled .ingress.enabled (not .ingress.host) }}
{{- fail "webhooks.ingress.enabled needs webhooks.ingress.host" }}
{{- end }}
{{- end }}
{{- with .Values.gateway }}
{{- if and .enabled .ingress.enabled (not .ingress.host) }}
{{- fail "gateway.ingress.enabled needs gateway.ingress.host" }}
{{- end }}
{{- if and .enabled .httpRoute.enabled (not .httpRoute.parentRefs) }}
{{- fail "gateway.httpRoute.enabled needs gateway.httpRoute.parentRefs: the Gateway that it belongs to" }}
{{- end }}
{{- if and .autoscaling.enabled (gt (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas)) }}
{{- fail "gateway.autoscaling.minReplicas is above gateway.autoscaling.maxReplicas" }}
{{- end }}
{{- if and (or .operations.secretName .operations.rules) (not .operations.cidrs) }}
{{- fail "gateway.operations.secretName and gateway.operations.rules need gateway.operations.cidrs: from where operators may call" }}
{{- end }}
{{- $root := . }}
{{- range .operations.rules }}
{{- if and .keys (not $root.operations.secretName) }}
{{- fail "gateway.operations.rules that name keys need gateway.operations.secretName: the Secret with their entries" }}
{{- end }}
{{- if not (or .keys $root.oidc) }}
{{- fail "gateway.operations.rules that name no keys are for those who are signed in: they need gateway.oidc" }}
{{- end }}
{{- end }}
{{- if and .oidc (not (and .oidc.publicUrl .oidc.issuers)) }}
{{- fail "gateway.oidc needs gateway.oidc.publicUrl and gateway.oidc.issuers" }}
{{- end }}
{{- if and .proxyCIDRs (not .trustedProxyHops) }}
{{- fail "gateway.proxyCIDRs is for proxies before the gateway, of which gateway.trustedProxyHops says there are none" }}
{{- end }}
{{- end }}
{{- if and .Values.artifacts.secretName (not .Values.artifacts.store) }}
{{- fail "artifacts.secretName is for the bucket in artifacts.store, which is empty" }}
{{- end }}
{{- if and .Values.artifacts.pods.enabled (not .Values.artifacts.store) }}
{{- fail "artifacts.pods.enabled needs the bucket in artifacts.store, which is empty" }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (not .Values.artifacts.store) }}
{{- if and .Values.persistence.enabled (not .Values.persistence.existingClaim) (not (has "ReadWriteMany" .Values.persistence.accessModes)) }}
{{- fail "replicas above 1 need a store that every node can mount: persistence.accessModes [ReadWriteMany], persistence.existingClaim, or a bucket in artifacts.store" }}
{{- end }}
{{- if not .Values.persistence.enabled }}
{{- fail "replicas above 1 need a store that all share: persistence.enabled, or a bucket in artifacts.store" }}
{{- end }}
{{- end }}
{{- end }}
