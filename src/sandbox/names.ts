import type { ContainerDescription, PodDescription } from '../runtime/index.ts';
import type { ErrorContext } from '../core/errors/index.ts';

/** A pod or a container as messages name it. */
export interface Named {
  /** `container web` */
  readonly text: string;
  readonly ids: Pick<ErrorContext, 'pod' | 'container'>;
}

export const podNamed = (pod: PodDescription): Named => {
  const name = `${pod.metadata.namespace}/${pod.metadata.name}`;
  return { text: `pod ${name}`, ids: { pod: name } };
};

export const containerNamed = ({ name }: Pick<ContainerDescription, 'name'>, pod: PodDescription): Named => ({
  text: `container ${name}`,
  ids: { container: name, ...podNamed(pod).ids },
});
