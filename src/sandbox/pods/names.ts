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

/** Returns the name of a pod in errors and log lines. */
export const podSubject = (pod: PodDescription): Subject => ({
  text: `pod ${podName(pod)}`,
  ids: { pod: podName(pod) },
});

/** Returns the name of a container in errors and log lines. */
export const containerSubject = ({ name }: Pick<ContainerDescription, 'name'>, pod: PodDescription): Subject => ({
  text: `container ${name}`,
  ids: { container: name, pod: podName(pod) },
});
