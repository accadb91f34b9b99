/** Valid kubelet state files (kubelet pkg/kubelet/allocation/state, pkg/kubelet/cm) and API server content. */

export const podUid = '1b4e28ba-2fa1-11d2-883f-0016d3cca427';

const amounts = { requests: { cpu: '250m', memory: '128Mi' }, limits: { cpu: '500m', memory: '134217728' } };

export const checkpointEntries = {
  [podUid]: { ContainerResources: { web: amounts, sidecar: { limits: { memory: '64Mi' } } } },
  '2b4e28ba-2fa1-11d2-883f-0016d3cca428': {
    ContainerResources: { app: { requests: { cpu: '1' } } },
    PodLevelResources: amounts,
  },
};

export const cpuState = {
  policyName: 'static',
  defaultCpuSet: '0,4-7',
  entries: { [podUid]: { web: '1-3' } },
  podEntries: { [podUid]: { cpuSet: '1-3' } },
  checksum: 1,
};

const blocks = [{ numaAffinity: [0, 1], type: 'memory', size: 1_073_741_824 }];

export const memoryState = {
  policyName: 'Static',
  machineState: { 0: { numberOfAssignments: 1, memoryMap: {}, cells: [0] } },
  entries: { [podUid]: { web: blocks } },
  podEntries: { [podUid]: { memoryBlocks: blocks } },
  checksum: 1,
};

export const apiPod = {
  metadata: {
    uid: podUid,
    name: 'web',
    namespace: 'default',
    resourceVersion: '1',
    annotations: { 'volume.cri-resize-shim.io/cache': '64Mi', 'kubernetes.io/config.mirror': 'x' },
    ownerReferences: [{ kind: 'Node' }],
  },
  spec: {
    containers: [
      {
        name: 'web',
        resources: amounts,
        resizePolicy: [{ resourceName: 'memory', restartPolicy: 'RestartContainer' }],
      },
    ],
    initContainers: [{ name: 'init', restartPolicy: 'Always', resources: amounts }],
    resources: amounts,
    priority: 0,
    volumes: [{ name: 'cache', emptyDir: { medium: 'Memory', sizeLimit: '64Mi' } }],
  },
  status: { qosClass: 'Burstable' },
};
