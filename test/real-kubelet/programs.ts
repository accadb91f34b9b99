import type { Part } from '../../tools/download/cache.ts';
import type { Progress } from '../../tools/download/progress.ts';
import type { GoModule } from '../support/node/parts/go-module.ts';
import { obtainBuilt } from '../support/node/parts/go-module.ts';

/** The releases of Kubernetes whose kubelet and API server the tests run, and the version of each. */
const versions = {
  '1.33': 'v1.33.13',
  '1.34': 'v1.34.4',
  '1.35': 'v1.35.4',
  '1.36': 'v1.36.3',
  '1.37': 'v1.37.2',
} as const;
export type KubernetesRelease = keyof typeof versions;
export const kubernetesReleases = Object.keys(versions) as KubernetesRelease[];
/** The release that commands use if none is named. */
export const usualKubernetes: KubernetesRelease = '1.37';
export const kubeletVersion = (release: KubernetesRelease): string => versions[release];

const etcd: GoModule = { path: 'go.etcd.io/etcd/server/v3', version: 'v3.6.8', linking: '', programs: { etcd: '.' } };

/** kubelet and kube-apiserver. Their libraries are released with the same minor and patch version. */
export function kubernetesModule(release: KubernetesRelease): GoModule {
  const version = versions[release];
  const [major, minor] = release.split('.');
  const variables = Object.entries({ gitVersion: version, gitMajor: major, gitMinor: minor });
  return {
    path: 'k8s.io/kubernetes',
    version,
    siblingVersion: version.replace('v1.', 'v0.'),
    linking: variables.map(([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`).join(' '),
    programs: { kubelet: './cmd/kubelet', 'kube-apiserver': './cmd/kube-apiserver' },
  };
}

/**
 * kubelet, kube-apiserver and etcd, built from their Go modules the first time. Throws NodeError without a Go
 * toolchain.
 */
export function obtainKubernetes(release: KubernetesRelease, progress: Progress): Promise<Part> {
  const what = `kubelet ${versions[release]}, kube-apiserver and etcd`;
  const modules = [kubernetesModule(release), etcd];
  return obtainBuilt({ name: `kubernetes-${release}`, modules, what, time: 'five to twenty minutes' }, progress);
}

/** kubeadm, built from its Go module the first time. Throws NodeError without a Go toolchain. */
export function obtainKubeadm(release: KubernetesRelease, progress: Progress): Promise<Part> {
  const modules = [{ ...kubernetesModule(release), programs: { kubeadm: './cmd/kubeadm' } }];
  const what = `kubeadm ${versions[release]}`;
  return obtainBuilt({ name: `kubeadm-${release}`, modules, what, time: 'one to five minutes' }, progress);
}

export const vpaVersion = 'v1.8.1';

const vpaModules: readonly GoModule[] = [
  {
    path: 'k8s.io/autoscaler/vertical-pod-autoscaler',
    version: vpaVersion,
    linking: '',
    programs: { 'vpa-updater': './pkg/updater' },
    files: { 'crd.yaml': 'deploy/vpa-v1-crd-gen.yaml' },
  },
];

/**
 * The updater of the Vertical Pod Autoscaler, with the definition of its objects (crd.yaml). Built from its Go module
 * the first time. Throws NodeError without a Go toolchain.
 */
export function obtainVpa(progress: Progress): Promise<Part> {
  const what = `the updater of the Vertical Pod Autoscaler ${vpaVersion}`;
  return obtainBuilt({ name: 'vpa', modules: vpaModules, what, time: 'one to five minutes' }, progress);
}
