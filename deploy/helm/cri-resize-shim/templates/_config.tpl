{{/* The shim's configuration file. */}}
{{- define "cri-resize-shim.config" -}}
# The shim's configuration on each node, as docs/configuration.md has it. As long as it says nothing, each node keeps its own.
{{- with .Values.config }}
{{ toYaml . }}
{{- end }}
{{- end }}
