import { type KubernetesRelease, usualKubernetes } from '../programs.ts';

/** Whether a release is this one or newer. Default: the release for which the rows are written. */
export const isSince = (kubernetes: KubernetesRelease, since: KubernetesRelease = usualKubernetes): boolean =>
  minor(kubernetes) >= minor(since);

const minor = (kubernetes: KubernetesRelease): number => Number(kubernetes.split('.')[1]);
