import { execa } from 'execa';
import { NodeError } from '../download/errors.ts';

/** A program that builds images, and its arguments. */
export interface Builder {
  readonly program: string;
  /** Builds the Dockerfile of the working folder. @param more further flags of the builder */
  readonly build: (name: string, more: readonly string[]) => readonly string[];
  /** Writes the image to a file as `docker save` does. */
  readonly save: (name: string, file: string) => readonly string[];
}

const build = (name: string, more: readonly string[]): readonly string[] => ['build', '--tag', name, ...more, '.'];

const builders: readonly Builder[] = [
  { program: 'docker', build, save: (name, file) => ['save', '--output', file, name] },
  {
    program: 'podman',
    build,
    save: (name, file) => ['save', '--format', 'docker-archive', '--output', file, name],
  },
  { program: 'buildah', build, save: (name, file) => ['push', name, `docker-archive:${file}:${name}`] },
];

/**
 * Returns the first builder whose command "version" succeeds. docker is only a client, and its daemon may be missing.
 * @throws NodeError if none works
 */
export async function findBuilder(path = process.env['PATH'] ?? ''): Promise<Builder> {
  for (const builder of builders) {
    const { failed } = await execa(builder.program, ['version'], {
      env: { PATH: path },
      stdio: 'ignore',
      reject: false,
    });
    if (!failed) return builder;
  }
  const names = builders.map(({ program }) => program).join(', ');
  throw new NodeError(`found no builder of images: the command "version" of ${names} fails with PATH=${path}`);
}
