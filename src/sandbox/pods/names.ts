import type { ErrorContext } from '../../core/errors.ts';
import type { ContainerDescription, PodDescription } from '../../runtime/description.ts';

/** The pod or container that a message is about. */
export interface Subject {
  /** `container web` or `pod default/web` */
  readonly text: string;
  readonly ids: Pick<ErrorContext, 'pod' | 'container'>;
}

/** Returns `namespace/name`. */
export const fullName = ({ namespace, name }: { readonly namespace: string; readonly name: string }): string =>
  `${namespace}/${name}`;

/** Returns `namespace/name`. */
export const podName = ({ metadata }: PodDescription): string => fullName(metadata);

/** Returns how errors and log lines name a pod. */
export const podSubject = (pod: PodDescription): Subject => ({
  text: `pod ${podName(pod)}`,
  ids: { pod: podName(pod) },
});

/** Returns how errors and log lines name a container. */
export const containerSubject = ({ name }: Pick<ContainerDescription, 'name'>, pod: PodDescription): Subject => ({
  text: `container ${name}`,
  ids: { container: name, pod: podName(pod) },
});
