import type { ContainerDescription, PodDescription } from '../runtime/index.ts';
import type { ErrorContext } from '../core/errors/index.ts';

/** A pod or a container as messages name it. */
export interface Subject {
  /** `container web` */
  readonly text: string;
  readonly ids: Pick<ErrorContext, 'pod' | 'container'>;
}

export const podSubject = (pod: PodDescription): Subject => {
  const name = `${pod.metadata.namespace}/${pod.metadata.name}`;
  return { text: `pod ${name}`, ids: { pod: name } };
};

export const containerSubject = ({ name }: Pick<ContainerDescription, 'name'>, pod: PodDescription): Subject => ({
  text: `container ${name}`,
  ids: { container: name, ...podSubject(pod).ids },
});
