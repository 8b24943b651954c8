// The order of the pages, by task. TestSidebar fails for a page that is not in it.
export const sidebar = [
  section('Start', {
    'Overview': '/',
    'Tutorial': '/docs/tutorial',
    'Installation': '/docs/installation',
    'Examples': '/examples/README',
    'Comparison with other tools': '/docs/comparison',
  }),
  section('Run', {
    'Backups': '/docs/backup',
    'Restores': '/docs/restore',
    'Upgrades of clusters': '/docs/upgrades',
    'Around an upgrade': '/docs/upgrade-options',
    'Import': '/docs/import',
    'Configuration of machines': '/docs/config',
    'Images of Talos': '/docs/images',
    'Volumes of Talos': '/docs/volumes',
    'Settings of Talos': '/docs/system',
    'The main document': '/docs/main-document',
    'talconfig.yaml': '/docs/talhelper',
    'Operations': '/docs/operations',
    'Upgrades of the operator': '/docs/upgrading-the-operator',
    'Metrics': '/docs/metrics',
    'Runbooks of alerts': '/docs/runbooks',
    'Shards': '/docs/sharding',
    'Troubleshooting': '/docs/troubleshooting',
  }),
  section('Understand', {
    'Concepts': '/docs/concepts',
    'Glossary': '/docs/glossary',
    'Security': '/docs/security',
    'State Secret': '/docs/state-secret',
    'Performance': '/docs/performance',
    'Seed documents': '/docs/seeds',
  }),
  section('Reference', {
    'API': '/docs/api',
    'Conditions and reasons': '/docs/conditions',
    'Command line': '/docs/cli',
    'Chart': '/charts/talos-operator/README',
    'Contract with providers': '/docs/provider-contract',
    'Changelog': '/CHANGELOG',
    'Licences': '/docs/licenses',
  }),
  section('Contribute', {
    'Contributing': '/CONTRIBUTING',
    'Architecture': '/docs/architecture',
    'Decisions': '/docs/adr/README',
    'Lab': '/docs/lab',
    'Testing': '/docs/testing',
    'Releases': '/docs/release',
  }),
]

function section(text, pages) {
  return { text, items: Object.entries(pages).map(([text, link]) => ({ text, link })) }
}
