{{/* The shim's configuration file. */}}
{{- define "cri-resize-shim.config" -}}
# The configuration of the shim on each node, see docs/configuration.md. If empty, each node keeps its own file.
# Metrics that need a token: metricsBind: 127.0.0.1:9467 and metricsTokenFile: /etc/cri-resize-shim/metrics-token. The token's file
# is on each node, see docs/metrics.md.
{{- with .Values.config }}
{{ toYaml . }}
{{- end }}
{{- end }}
