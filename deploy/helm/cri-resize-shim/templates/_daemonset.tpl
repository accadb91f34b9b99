{{/*
A DaemonSet whose pods bring their nodes to a mode. Call with (dict "root" $ "component" NAME "mode" MODE "label" VALUE "selector" LABELS
"affinity" AFFINITY "of" VALUES): the values `image` and `config` replace those of the chart.
*/}}
{{- define "cri-resize-shim.daemonSet" -}}
{{- $values := .root.Values }}
{{- $isInstaller := eq .mode "install" }}
{{- range $key := list $values.label.key "kubernetes.io/os" }}
{{- if or (hasKey $values.nodeSelector $key) (hasKey $values.canary.nodeSelector $key) }}
{{- fail (printf "a nodeSelector has the key %s, which the chart sets" $key) }}
{{- end }}
{{- end }}
{{- range $key, $_ := $values.canary.nodeSelector }}
{{- if hasKey $values.nodeSelector $key }}
{{- fail (printf "nodeSelector and canary.nodeSelector have the key %s" $key) }}
{{- end }}
{{- end }}
{{- if eq $values.label.value $values.label.uninstallValue }}
{{- fail "label.uninstallValue is label.value: a node would get the shim and lose it" }}
{{- end }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: cri-resize-shim-{{ .component }}
  namespace: {{ include "cri-resize-shim.namespace" .root }}
  labels:
    {{- include "cri-resize-shim.labels" (dict "root" .root "component" .component) | nindent 4 }}
  {{- with $values.daemonSetAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  revisionHistoryLimit: {{ $values.revisionHistoryLimit }}
  # A pod is ready while its node is in its mode and Ready. So the roll-out stops at the first nodes that are not.
  minReadySeconds: {{ $values.minReadySeconds }}
  selector:
    matchLabels:
      app.kubernetes.io/name: cri-resize-shim-{{ .component }}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: {{ $values.maxUnavailable }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: cri-resize-shim-{{ .component }}
        app.kubernetes.io/component: {{ .component }}
        app.kubernetes.io/part-of: cri-resize-shim
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if or $isInstaller $values.podAnnotations }}
      annotations:
        {{- if $isInstaller }}
        # A change of the configuration replaces the pods, which then update the nodes.
        checksum/config: {{ include "cri-resize-shim.config" (dict "root" .root "of" .of) | sha256sum }}
        {{- end }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "cri-resize-shim.serviceAccountName" .root }}
      {{- include "cri-resize-shim.pod" .root | nindent 6 }}
      nodeSelector:
        kubernetes.io/os: linux
        {{ $values.label.key | quote }}: {{ .label | quote }}
        {{- with merge (deepCopy .selector) $values.nodeSelector }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      # Process 1 is systemd of the host, which runs resizectl.
      hostPID: true
      # The pod waits until resizectl has ended. The host completes its work without the pod, too.
      terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
      containers:
        - name: {{ ternary "installer" "uninstaller" $isInstaller }}
          image: {{ include "cri-resize-shim.image" (dict "root" .root "of" .of) | quote }}
          {{- with $values.image.pullPolicy }}
          imagePullPolicy: {{ . }}
          {{- end }}
          command: [node, /usr/local/lib/cri-resize-shim/dist/cri-resize-shim-installer.js]
          args:
            - --node-name=$(NODE_NAME)
            {{- with $values.kubeletUnit }}
            - {{ printf "--kubelet-unit=%s" . | quote }}
            {{- end }}
            {{- with $values.timeout }}
            - --timeout={{ . }}
            {{- end }}
            {{- if $isInstaller }}
            - --config=/etc/cri-resize-shim/config.yaml
            {{- if $values.repairDrift }}
            - --repair-drift
            {{- end }}
            {{- if $values.annotations.enabled }}
            - --shim-credentials=/etc/cri-resize-shim-credentials
            {{- end }}
            {{- if $values.podMonitor.enabled }}
            - --metrics-port={{ $values.podMonitor.port }}
            {{- end }}
            {{- end }}
          env:
            - name: NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            - name: INSTALLER_MODE
              value: {{ .mode }}
          {{- if and $isInstaller $values.podMonitor.enabled }}
          ports:
            - name: metrics
              containerPort: {{ $values.podMonitor.port }}
          {{- end }}
          securityContext:
            # The pod enters the mount namespace of the host and runs a program as root there. Fewer privileges would not be safer.
            privileged: true
            readOnlyRootFilesystem: true
          readinessProbe:
            exec:
              command: [sh, -c, 'read -r state < "$0"; [ "$state" = ready ] || { echo "$state"; exit 1; }', /run/cri-resize-shim-installer/state]
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: 3
          {{- with $values.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          volumeMounts:
            - name: staging
              mountPath: /var/lib/cri-resize-shim-installer
            - name: run
              mountPath: /run/cri-resize-shim-installer
            {{- if $isInstaller }}
            - name: config
              mountPath: /etc/cri-resize-shim
              readOnly: true
            {{- if $values.annotations.enabled }}
            - name: credentials
              mountPath: /etc/cri-resize-shim-credentials
              readOnly: true
            {{- end }}
            {{- end }}
      volumes:
        # The program is staged here for the host. This is the only mount of the host; no runtime socket is mounted.
        - name: staging
          hostPath:
            path: /var/lib/cri-resize-shim-installer
            type: DirectoryOrCreate
        - name: run
          emptyDir:
            medium: Memory
            sizeLimit: 1Mi
        {{- if $isInstaller }}
        - name: config
          configMap:
            name: cri-resize-shim{{ if eq .component "canary" }}-canary{{ end }}
        {{- if $values.annotations.enabled }}
        - name: credentials
          secret:
            secretName: cri-resize-shim-token
            defaultMode: 0400
        {{- end }}
        {{- end }}
{{- end }}
