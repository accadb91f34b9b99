import { stringify } from 'yaml';
import { apiVersion, configKeys, flagOf, kind, settingOf } from './schema.ts';

/**
 * A configuration file with every setting at its default. Commented out they stay the program's own: what a package ships as the file to
 * edit, each with what it means.
 */
export function configurationExample({ isCommentedOut }: { readonly isCommentedOut: boolean }): string {
  const settings = configKeys.flatMap((key) => {
    const { fallback, isSwitch, description, allowed } = settingOf(key);
    const line = `${key}: ${isSwitch ? fallback : stringify(fallback).trimEnd()}`;
    return isCommentedOut ? ['', `# ${description}`, `# It is ${allowed}.`, `#${line}`] : [line];
  });
  return `${[`apiVersion: ${apiVersion}`, `kind: ${kind}`, ...settings].join('\n')}\n`;
}

/** The text of docs/configuration.md, made from the schema: a test fails when the file has become old. */
export function configurationPage(): string {
  const rows = configKeys.map((key) => {
    const { allowed, description, fallback } = settingOf(key);
    return `| \`${key}\` | \`${flagOf(key)}\` | ${fallback === '' ? 'empty' : `\`${fallback}\``} | ${allowed} | ${description} |`;
  });
  return `# Configuration

Settings come from flags and from a YAML file (\`--config FILE\`). A flag goes before the file, the file before the default. An unknown key or
a bad value ends the start with a message that names the key, the value and what is allowed: exit code 2 for the command line, 1 for the file.

| key in the file | flag | default | allowed | meaning |
|---|---|---|---|---|
${rows.join('\n')}

\`--version\` and \`--help\` print and exit. A true-or-false flag may stand alone (\`--intercept\`) or with its value (\`--intercept=false\`).
Durations may be put together (\`1m30s\`).

## The file

These are the defaults. \`apiVersion\` and \`kind\` may be left out: the file is then read as this version.

\`\`\`yaml
${configurationExample({ isCommentedOut: false }).trimEnd()}
\`\`\`

## Who may connect

The socket and its folder get the owner and mode of the backend's socket and folder, never more. Until the backend's socket is there, only root
may connect. A folder that holds other files too (as \`/run\` does) is left as it is; if others can reach it who cannot reach the backend's socket, the
socket's own mode is cut down instead.

The socket of the resize API belongs to the user that the shim runs as, with the mode \`resizeSocketMode\`, and is there only with
\`intercept\`.

Metrics (\`metricsBind\`) are served to this machine alone: at a loopback address to each of its users, at a unix socket to the user that the
shim runs as (mode 0600). Any other address is refused. \`localhost\` is 127.0.0.1.

Sockets that systemd passes on ([units.md](units.md)) stay as systemd has made them.

## Stopping

On SIGTERM or SIGINT the shim stops accepting, tells every client (GOAWAY), lets running calls finish for up to \`shutdownTimeout\` and exits 0; calls
that still run then are cut, and a warning says how many. Watches (GetContainerEvents) are ended once nothing else runs. A second signal ends it at once, with exit code 130 (SIGINT) or 143 (SIGTERM). Exit code 1:
it could not start or could not go on serving.
`;
}
