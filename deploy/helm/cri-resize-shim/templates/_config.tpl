{{/*
The shim's settings: those of the value "config", and those that other values of the chart need. Call with (dict "root" $ "of" VALUES): the
value `config` replaces single settings of the chart's.
*/}}
{{- define "cri-resize-shim.settings" -}}
{{- $values := .root.Values }}
{{- $settings := deepCopy $values.config }}
{{- range $key, $value := .of.config }}
{{- $_ := set $settings $key $value }}
{{- end }}
{{- if $settings.nodeName }}
{{- fail "config.nodeName has to be empty: each node has its own name, which the installer sets" }}
{{- end }}
{{- if $values.annotations.enabled }}
{{- $settings = merge $settings (dict "kubeconfig" "/var/lib/cri-resize-shim-installer/kubeconfig") }}
{{- end }}
{{- if $values.podMonitor.enabled }}
{{- if not (has $settings.metricsBind (list nil "" "unix:///run/cri-resize-shim/metrics.sock")) }}
{{- fail "podMonitor.enabled needs config.metricsBind to be empty: the installer reads unix:///run/cri-resize-shim/metrics.sock" }}
{{- end }}
{{- $settings = merge $settings (dict "metricsBind" "unix:///run/cri-resize-shim/metrics.sock") }}
{{- end }}
{{- with $settings }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* The shim's configuration file. Call as cri-resize-shim.settings. */}}
{{- define "cri-resize-shim.config" -}}
# The configuration of the shim on each node, see docs/configuration.md. If empty, each node keeps its own file.
# Metrics that need a token: metricsBind: 127.0.0.1:9467 and metricsTokenFile: /etc/cri-resize-shim/metrics-token. The token's file
# is on each node, see docs/metrics.md.
{{- with include "cri-resize-shim.settings" . }}
{{ . }}
{{- end }}
{{- end }}
