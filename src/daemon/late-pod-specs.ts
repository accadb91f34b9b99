import { type PodIdentity, type PodSpec, type PodSpecs, noPodSpecs } from '../sandbox/index.ts';

/** The specs of pods, from a source that is known only once the API server is watched. Until then no spec is known. */
export class LatePodSpecs implements PodSpecs {
  #source: PodSpecs = noPodSpecs;

  use(source: PodSpecs): void {
    this.#source = source;
  }

  of(pod: PodIdentity): PodSpec | undefined {
    return this.#source.of(pod);
  }
}
