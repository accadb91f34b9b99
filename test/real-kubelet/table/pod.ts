/** The pods of the table: the fields of the API that it reads, and builders for manifests. */

export type Amounts = Readonly<Record<string, string>>;

export interface Resources {
  readonly limits?: Amounts;
  readonly requests?: Amounts;
}

/** kubelet's report of a pod or of a container. */
export interface Reported {
  readonly resources?: Resources;
  readonly allocatedResources?: Amounts;
}

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly command: readonly string[];
  readonly resources?: Resources;
  readonly restartPolicy?: 'Always';
  readonly resizePolicy?: readonly { readonly resourceName: string; readonly restartPolicy: string }[];
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
  readonly [field: string]: unknown;
}

export interface Volume {
  readonly name: string;
  readonly emptyDir?: { readonly medium: 'Memory'; readonly sizeLimit?: string };
  /**
   * The size of a volume whose size changes: its sizeLimit if kubelet resizes volumes. Otherwise its annotation, and
   * the sizeLimit is a bound that leaves room.
   */
  readonly size?: string;
  readonly hostPath?: { readonly path: string };
}

export interface PodSpec {
  readonly containers: readonly Container[];
  readonly initContainers?: readonly Container[];
  readonly resources?: Resources;
  readonly runtimeClassName?: string;
  /** Set by the API server. */
  readonly overhead?: Amounts;
  readonly volumes?: readonly Volume[];
}

export interface ContainerStatus extends Reported {
  readonly name: string;
  readonly containerID?: string;
  readonly restartCount: number;
  readonly ready: boolean;
  readonly state: ContainerState;
  readonly lastState?: ContainerState;
}

interface ContainerState {
  readonly running?: object;
  readonly waiting?: { readonly reason?: string };
  readonly terminated?: { readonly reason?: string };
}

export interface Pod {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly generation: number;
    readonly deletionTimestamp?: string;
  };
  readonly spec: PodSpec;
  readonly status: Reported & {
    readonly phase: string;
    readonly qosClass: 'Guaranteed' | 'Burstable' | 'BestEffort';
    readonly observedGeneration?: number;
    readonly conditions?: readonly {
      readonly type: string;
      readonly status: string;
      readonly reason?: string;
      readonly message?: string;
    }[];
    readonly initContainerStatuses?: readonly ContainerStatus[];
    readonly containerStatuses?: readonly ContainerStatus[];
    readonly ephemeralContainerStatuses?: readonly ContainerStatus[];
  };
}

export const IMAGE = 'localhost/busybox:1';
/** An image of the table's own registry, which answers when a row says so. */
export const SLOW_IMAGE = 'localhost:5000/slow:1';
/** A RuntimeClass with an overhead. */
export const OVERHEAD_CLASS = 'with-overhead';
export const OVERHEAD = { cpu: '20m', memory: '120Mi' };

/** A sizeLimit above all sizes of the table. */
const ROOM = '1Gi';

/** The annotation that sets a volume's size through the shim. */
const annotationOf = (volume: string): string => `volume.cri-resize-shim.io/${volume}`;

/** The folder in which containers find the gates of their pod. */
const GATES = '/gates';
const gates = { name: 'gates', mountPath: GATES };

const forever = 'exec sleep 1000000';

/** A container with this probe is ready once it has created the file. */
export const READY = '/tmp/ready';
export const readyByFile: Partial<Container> = {
  readinessProbe: { exec: { command: ['test', '-e', READY] }, periodSeconds: 2 },
};

/** Returns a container that does nothing. `more` replaces fields. */
export const container = (name: string, resources: Resources, more: Partial<Container> = {}): Container => ({
  name,
  image: IMAGE,
  imagePullPolicy: 'Never',
  command: ['sh', '-c', forever],
  resources,
  ...more,
});

/** A container that exits with code 0 once the gate is open. */
export const waitAt = (gate: string): Partial<Container> => ({
  // Reading blocks until the gate's FIFO has a line.
  command: ['sh', '-c', `read line <${GATES}/${gate}.fifo; exit 0`],
  volumeMounts: [gates],
});

/** A container that fails at once as long as the gate is closed. If it is open, it runs and becomes ready. */
export const failUntil = (gate: string): Partial<Container> => ({
  command: ['sh', '-c', `[ -e ${GATES}/${gate} ] || exit 1; touch ${READY}; ${forever}`],
  volumeMounts: [gates],
  ...readyByFile,
});

/** Amounts of CPU and memory, of which either may be absent. */
export const amounts = (cpu?: string, memory?: string): Amounts => ({
  ...(cpu !== undefined && { cpu }),
  ...(memory !== undefined && { memory }),
});
export const limits = (cpu?: string, memory?: string): Resources => ({ limits: amounts(cpu, memory) });
export const requests = (cpu?: string, memory?: string): Resources => ({ requests: amounts(cpu, memory) });
/** Limits that equal the requests: a pod of such containers is Guaranteed. */
export const both = (cpu: string, memory: string): Resources => ({
  limits: amounts(cpu, memory),
  requests: amounts(cpu, memory),
});
/**
 * Memory as limit and request, and a CPU request of a tenth of the limit. The node has one processor for all pods, and
 * a container with a small CPU limit takes seconds to start.
 */
export const sized = (milliCpu: number, memory: string): Resources => ({
  limits: amounts(`${milliCpu}m`, memory),
  requests: amounts(`${milliCpu / 10}m`, memory),
});

/**
 * Returns the manifest of a row's pod.
 * @param gatesFolder the folder of its gates on the node
 * @param hasVolumeGate whether kubelet resizes volumes
 */
export function manifestOf(
  name: string,
  spec: PodSpec,
  node: string,
  gatesFolder: string,
  hasVolumeGate = false,
): object {
  const volumes = spec.volumes ?? [];
  // If kubelet resizes a volume, its annotation must have no effect.
  const annotations = volumes.flatMap((volume) =>
    volume.size === undefined ? [] : [[annotationOf(volume.name), hasVolumeGate ? '10%' : volume.size] as const],
  );
  return {
    metadata: { name, annotations: Object.fromEntries(annotations) },
    spec: {
      nodeName: node,
      hostNetwork: true,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      terminationGracePeriodSeconds: 0,
      tolerations: [{ operator: 'Exists' }],
      ...spec,
      volumes: [
        ...volumes.map(({ size, ...volume }) => ({
          ...volume,
          ...(size !== undefined && { emptyDir: { medium: 'Memory', sizeLimit: hasVolumeGate ? size : ROOM } }),
        })),
        { name: gates.name, hostPath: { path: gatesFolder } },
      ],
    },
  };
}
