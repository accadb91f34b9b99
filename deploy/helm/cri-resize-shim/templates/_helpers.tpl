{{/* The namespace of all objects: that of the release, unless the chart is a part of another one. */}}
{{- define "cri-resize-shim.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride | quote }}
{{- end }}

{{- define "cri-resize-shim.serviceAccountName" -}}
{{- if has .Values.serviceAccount.name (list "cri-resize-shim" "cri-resize-shim-restore" "cri-resize-shim-viewer") }}
{{- fail (printf "serviceAccount.name is %s, which is another service account of the chart" .Values.serviceAccount.name) }}
{{- end }}
{{- default "cri-resize-shim-installer" .Values.serviceAccount.name | quote }}
{{- end }}

{{/* Labels of all objects. Call with (dict "root" $ "component" NAME). */}}
{{- define "cri-resize-shim.labels" -}}
app.kubernetes.io/name: cri-resize-shim-{{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: cri-resize-shim
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Call with (dict "root" $ "of" VALUES): a tag or digest in the value `image` replaces those of the chart. */}}
{{- define "cri-resize-shim.image" -}}
{{- $image := .root.Values.image }}
{{- $own := .of.image | default dict }}
{{- if or $own.tag $own.digest }}
{{- $image = merge (pick $own "tag" "digest") (omit $image "tag" "digest") }}
{{- end }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository ($image.tag | default .root.Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* What the pods of the chart have in common: pull secrets, priority, tolerations. */}}
{{- define "cri-resize-shim.pod" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.tolerations }}
# Cordoned nodes and nodes with problems are handled like any other.
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
