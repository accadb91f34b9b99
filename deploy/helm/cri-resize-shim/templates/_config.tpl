{{/* The shim's configuration file. */}}
{{- define "cri-resize-shim.config" -}}
# The configuration of the shim on each node, see docs/configuration.md. If empty, each node keeps its own file.
{{- with .Values.config }}
{{ toYaml . }}
{{- end }}
{{- end }}
