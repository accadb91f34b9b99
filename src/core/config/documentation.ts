import { stringify } from 'yaml';
import { apiVersion, configKeys, flagOf, kind, settingOf } from './schema.ts';

/**
 * Returns a configuration file with every setting at its default value. With `isCommentedOut`, each setting is a comment with its
 * description: packages ship this file for users to edit, and unedited settings keep the defaults of the installed version.
 */
export function configurationExample({ isCommentedOut }: { readonly isCommentedOut: boolean }): string {
  const settings = configKeys.flatMap((key) => {
    const { fallback, isBoolean, description, allowed } = settingOf(key);
    const line = `${key}: ${isBoolean ? fallback : stringify(fallback).trimEnd()}`;
    return isCommentedOut ? ['', `# ${description}`, `# Allowed: ${allowed}.`, `#${line}`] : [line];
  });
  return `${[`apiVersion: ${apiVersion}`, `kind: ${kind}`, ...settings].join('\n')}\n`;
}

const checkingText = `## Check and show

\`resizectl config check FILE\` checks a file before it is used (exit code 1 if it is invalid):

\`\`\`text
# resizectl config check config.yaml
config.yaml:3:1: logLevl: unknown key (did you mean logLevel?); allowed keys: apiVersion, kind, listen, ...
config.yaml:7:1: intercept: "nope" must be true or false
\`\`\`

Without FILE it checks the flags of the service in \`/etc/default/cri-resize-shim\` and the file that they name, or,
before an installation, \`/etc/cri-resize-shim/config.yaml\`.
\`resizectl config show\` prints every setting with its value and where it comes from: the default, a line of the file,
or a flag. Both print JSON with \`-o json\`. The values of the Helm chart have a JSON schema that is made from these
settings, so an invalid \`config\` is not rendered.

`;

const servingText = `## Who may connect

- The CRI socket and its folder get the owner and mode of the backend's socket and folder, never more. Until the
  backend's socket exists, only root may connect. A folder that also contains other files (such as \`/run\`) is not
  changed; if users can reach it who cannot reach the backend's socket, the shim restricts the mode of its own socket
  instead.
- The socket of the resize API belongs to the user that the shim runs as, with the mode \`resizeSocketMode\`. It exists
  only with \`intercept\`.
- Metrics (\`metricsBind\`) are served to this machine only: at a loopback address to each of its users, at a unix
  socket to the user that the shim runs as (mode 0600). Any other address is rejected. \`localhost\` is 127.0.0.1.
  With \`metricsTokenFile\`, every request needs the token in that file ([metrics.md](metrics.md#a-token)).
- Sockets that systemd passes to the shim ([units.md](units.md)) keep the rights that systemd has set.

## Stopping

On SIGTERM or SIGINT the shim accepts no more connections, sends every client GOAWAY, and lets running calls finish
for up to \`shutdownTimeout\`. It then cuts off the calls that still run, with a warning that says how many. It ends
watches (GetContainerEvents) once nothing else runs, and connections that containerd has not answered after 3 s.

A disk that hangs, for example in an fsync of the journal, does not prevent the stop: the shim closes everything else,
waits at most 5 s for the disk, and then ends by a signal, because Node cannot exit while a thread hangs.

| ends with | meaning |
|---|---|
| exit code 0 | stopped by a signal |
| exit code 1 | could not start, or could not continue to serve |
| exit code 2 | invalid command line |
| SIGINT, SIGTERM (130, 143 in a shell) | stopped at once by a second signal, or by the first one while a disk hangs |
| SIGKILL (137 in a shell) | could not start, or could not continue to serve, while a disk hangs |
`;

/** Returns the text of docs/configuration.md, generated from the schema. A test compares it with the file. */
export function configurationPage(): string {
  const rows = configKeys.map((key) => {
    const { allowed, description, fallback } = settingOf(key);
    return `| \`${key}\` | \`${flagOf(key)}\` | ${fallback === '' ? 'empty' : `\`${fallback}\``} | ${allowed} | ${description} |`;
  });
  return `# Configuration

This page lists every setting of the shim, with its default and the allowed values.

Settings come from flags and from a YAML file (\`--config FILE\`). A flag overrides the file, and the file overrides the
default. An unknown key or an invalid value ends the start with a message that names the key, the value and what is
allowed: exit code 2 for the command line, 1 for the file. In the systemd unit, an invalid file has the shim
[forward every call unchanged](units.md#an-invalid-configuration) instead.

| key in the file | flag | default | allowed | meaning |
|---|---|---|---|---|
${rows.join('\n')}

\`--version\` and \`--help\` print and exit. A true-or-false flag may be given alone (\`--intercept\`) or with its value
(\`--intercept=false\`). Durations may be combined (\`1m30s\`).

## The file

This file has the defaults. \`apiVersion\` and \`kind\` are optional: without them, the file is read as this version.

\`\`\`yaml
${configurationExample({ isCommentedOut: false }).trimEnd()}
\`\`\`

${checkingText}${servingText}`;
}
