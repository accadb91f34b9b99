import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';

/** Files that contain the version, each with the expression that finds it. */
const PLACES: readonly (readonly [file: string, pattern: RegExp])[] = [
  ['deploy/helm/cri-resize-shim/Chart.yaml', /^version: (.+)$/m],
  ['deploy/helm/cri-resize-shim/Chart.yaml', /^appVersion: (.+)$/m],
  ['deploy/kustomize/daemonset.yaml', /image: cri-resize-shim:(.+)$/m],
  ['package-lock.json', /^ {2}"version": "(.+)",$/m],
];

/**
 * Returns the reasons why a checkout cannot be released, one per line: a place with another version, a changelog
 * without a date, files that differ from the commit, a tag on another commit. Rejects if a file cannot be read.
 */
export async function problemsOf(root: string, version: string): Promise<string[]> {
  const problems: string[] = [];
  const read = (file: string): string => readFileSync(join(root, file), 'utf8');
  for (const [file, pattern] of PLACES) {
    const found = pattern.exec(read(file))?.[1];
    if (found !== version)
      problems.push(`${file}: found version ${found ?? 'none'}, expected ${version} as in package.json`);
  }
  const heading = read('CHANGELOG.md')
    .split('\n')
    .find((line) => line.startsWith(`## [${version}]`));
  if (heading === undefined) problems.push(`CHANGELOG.md: no section for ${version}`);
  else if (!/ - \d{4}-\d{2}-\d{2}$/.test(heading))
    problems.push(`CHANGELOG.md: "${heading}" has no date: expected "## [${version}] - YYYY-MM-DD"`);
  const git = async (...args: readonly string[]): Promise<string> =>
    (await execa('git', args, { cwd: root, reject: false })).stdout.trim();
  const changed = (await git('status', '--porcelain')).split('\n').filter((line) => line !== '');
  if (changed.length > 0)
    problems.push(`${changed.length} files differ from the commit, such as "${changed[0] ?? ''}"`);
  const tagged = await git('rev-parse', '--quiet', '--verify', `refs/tags/v${version}^{commit}`);
  if (tagged !== '' && tagged !== (await git('rev-parse', 'HEAD')))
    problems.push(`the tag v${version} is on another commit: ${tagged}`);
  return problems;
}

/** Returns the time of the commit in seconds since the epoch: all files of a release have it. */
export async function epochOf(root: string): Promise<string> {
  return (await execa('git', ['log', '-1', '--format=%ct'], { cwd: root })).stdout.trim();
}
