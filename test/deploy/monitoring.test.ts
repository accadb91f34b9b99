import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { families } from '../../src/core/observe/families.ts';
import type { Description } from '../../src/core/observe/family.ts';
import { alertCases, quietCases } from './alert-cases.ts';
import { namesIn, preparePromtool } from './promql.ts';

/** Tests that deploy/alerts.yaml and deploy/grafana.json use existing metrics, and alerts fire when required. */

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}
interface Panel {
  readonly id: number;
  readonly title: string;
  readonly type: string;
  readonly description?: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly fieldConfig?: { readonly defaults: { readonly unit: string } };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat?: string; readonly refId: string }[];
}

const { groups } = parse(readFileSync('deploy/alerts.yaml', 'utf8')) as { groups: { rules: Rule[] }[] };
const rules = groups.flatMap((group) => group.rules);
const dashboard = JSON.parse(readFileSync('deploy/grafana.json', 'utf8')) as {
  panels: Panel[];
  templating: { list: { name: string; query: unknown }[] };
};
const drawn = dashboard.panels.filter(({ type }) => type !== 'row');
/** Expressions with values in place of Grafana's variables. */
const expressions = drawn.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr }) => ({
    title,
    expr: expr.replaceAll(/\$__(?:rate_interval|range)/g, '5m').replaceAll(/\$(?:job|instance)/g, '.+'),
  })),
);

const known = new Map<string, Description>(
  Object.values(families).flatMap((family: Description) =>
    (family.type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']).map(
      (end) => [family.name + end, family] as const,
    ),
  ),
);
/** Users replace this address by that of their copy of the repository. */
const RUNBOOKS = 'https://runbooks.example.com/cri-resize-shim/';
/** The labels that Prometheus adds to each series, and the bound of a bucket. */
const always = ['job', 'instance', 'le', 'daemonset'];
/** Prometheus writes `up` for each target, and kube-state-metrics the other. */
const foreign = ['up', 'kube_daemonset_status_desired_number_scheduled'];

function expectKnown(expression: string): void {
  const { metrics, labels } = namesIn(expression);
  expect(metrics, expression).not.toEqual([]);
  for (const metric of metrics) expect([...known.keys(), ...foreign], expression).toContain(metric);
  const theirs = metrics.flatMap((metric) => known.get(metric)?.labels ?? []);
  for (const label of labels) expect([...theirs, ...always], `${label} in ${expression}`).toContain(label);
}

/** Returns the anchors of a page's headings. */
const anchors = (page: string): string[] =>
  [...readFileSync(page, 'utf8').matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );

let promtool: string;
let folder: string;
beforeAll(async () => {
  promtool = await preparePromtool((line) => void process.stderr.write(`promtool: ${line}\n`));
  folder = mkdtempSync(join(tmpdir(), 'rules-'));
}, 900_000);
afterAll(() => rmSync(folder, { recursive: true }));

/** Returns the output of promtool if it fails, otherwise an empty text. */
async function errorsOf(...args: string[]): Promise<string> {
  const { exitCode, all } = await execa(promtool, args, { all: true, reject: false });
  return exitCode === 0 ? '' : all;
}

describe('deploy/alerts.yaml', () => {
  test('deploy/alerts.yaml is valid for Prometheus', async () => {
    expect(await errorsOf('check', 'rules', 'deploy/alerts.yaml')).toBe('');
  });

  test.each(rules)(
    'the alert $alert uses existing metrics, and has a severity, a description and an existing runbook',
    (rule) => {
      expectKnown(rule.expr);
      const { summary = '', description = '', runbook_url: url = '' } = rule.annotations;
      expect(['critical', 'warning', 'info']).toContain(rule.labels['severity']);
      expect(summary.length).toBeGreaterThan(20);
      expect(description.length).toBeGreaterThan(80);
      expect(url.startsWith(RUNBOOKS), url).toBe(true);
      const [page = '', anchor] = url.slice(RUNBOOKS.length).split('#');
      expect(existsSync(page), url).toBe(true);
      expect(anchors(page)).toContain(anchor);
    },
  );

  test('each alert fires in its case, and not before', async () => {
    expect(alertCases.map(({ alert }) => alert)).toEqual(rules.map(({ alert }) => alert));
    const firing = alertCases.map(({ alert, series, calm, fires, stays, labels }) => ({
      name: alert,
      interval: '1m',
      input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
      alert_rule_test: [
        { eval_time: calm, alertname: alert, exp_alerts: [] },
        ...[fires, ...(stays === undefined ? [] : [stays])].map((eval_time) => ({
          eval_time,
          alertname: alert,
          exp_alerts: labels.map((exp_labels) => ({ exp_labels: { ...ruleLabels(alert), ...exp_labels } })),
        })),
      ],
    }));
    const quiet = quietCases.map(({ alert, series }) => ({
      name: `${alert} is quiet`,
      interval: '1m',
      input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
      alert_rule_test: ['10m', '30m', '40m'].map((eval_time) => ({ eval_time, alertname: alert, exp_alerts: [] })),
    }));
    const tests = [...firing, ...quiet];
    // promtool also compares annotations, so the rules are tested without them.
    const bare = groups.map((group, index) => ({
      name: `group-${index}`,
      rules: group.rules.map((rule) =>
        Object.fromEntries(Object.entries(rule).filter(([key]) => key !== 'annotations')),
      ),
    }));
    writeFileSync(join(folder, 'rules.yaml'), stringify({ groups: bare }));
    const file = join(folder, 'tests.yaml');
    writeFileSync(file, stringify({ rule_files: ['rules.yaml'], evaluation_interval: '1m', tests }));
    expect(await errorsOf('test', 'rules', file)).toBe('');
  });
});

const ruleLabels = (alert: string): Readonly<Record<string, string>> =>
  rules.find((rule) => rule.alert === alert)?.labels ?? {};

describe('deploy/grafana.json', () => {
  test('the expressions of deploy/grafana.json are valid for Prometheus', async () => {
    const file = resolve(folder, 'dashboard.yaml');
    const recorded = expressions.map(({ expr }, index) => ({ record: `panel:${index}`, expr }));
    writeFileSync(file, stringify({ groups: [{ name: 'panels', rules: recorded }] }));
    expect(await errorsOf('check', 'rules', file)).toBe('');
  });

  test.each(expressions)('the dashboard uses existing metrics in $title: $expr', ({ expr }) => expectKnown(expr));

  test('the dashboard shows every metric', () => {
    const shown = new Set(
      expressions.flatMap(({ expr }) => namesIn(expr).metrics.map((name) => known.get(name)?.name)),
    );
    const missing = Object.values(families)
      .map(({ name }) => name)
      .filter((name) => !shown.has(name));
    expect(missing, 'add them to a panel of deploy/grafana.json').toEqual([]);
  });

  test('the panels of the dashboard have unit and description, and do not overlap', () => {
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    const taken = new Set<string>();
    for (const { title, gridPos } of dashboard.panels)
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1)
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          expect(taken.has(`${x} ${y}`), title).toBe(false);
          expect(x, title).toBeLessThan(24);
          taken.add(`${x} ${y}`);
        }
    for (const { title, description, fieldConfig, targets } of drawn) {
      expect(description?.length, title).toBeGreaterThan(20);
      expect(fieldConfig?.defaults.unit, title).toBeTruthy();
      expect(targets?.length, title).toBeGreaterThan(0);
    }
  });
});
