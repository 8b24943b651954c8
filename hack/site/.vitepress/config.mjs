// The site is the Markdown of the repository, as it is: make docs-site copies it beside this folder, and nothing is written
// for the site alone but the order of the pages. A link that leads nowhere fails the build.
import { existsSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { withMermaid } from 'vitepress-plugin-mermaid'
import { sidebar } from './sidebar.mjs'

const version = required('DOCS_VERSION')
const source = required('DOCS_SOURCE')
const repository = 'https://github.com/talos-operator/talos-operator'

export default withMermaid({
  title: 'talos-operator',
  description: 'Runs Talos Linux Kubernetes clusters declaratively, from one management cluster.',
  outDir: required('DOCS_OUTPUT'),
  rewrites: { 'README.md': 'index.md' },
  cleanUrls: false,
  lastUpdated: false,
  lang: 'en',
  markdown: {
    config: (md) => {
      md.core.ruler.push('links', (state) => links(state))
      breakable(md)
    },
  },
  themeConfig: {
    nav: [{ text: version, link: '/CHANGELOG' }],
    sidebar,
    outline: { level: [2, 3] },
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: repository }],
  },
})

// links sends the links to files that are no pages of the site to the code host, in the version that the site shows.
function links(state) {
  const page = state.env.relativePath === 'index.md' ? 'README.md' : state.env.relativePath
  for (const block of state.tokens) {
    for (const token of block.children ?? []) {
      const target = token.type === 'link_open' && token.attrGet('href')
      if (target && !/^(#|\w+:)/.test(target)) token.attrSet('href', resolve(page, target))
    }
  }
}

function resolve(page, target) {
  const [path, section] = target.split('#')
  const file = normalize(join(dirname(page), decodeURI(path)))
  const anchor = section ? `#${section}` : ''
  if (file === 'README.md') return `/index.md${anchor}`
  if (file.endsWith('.md') && existsSync(file)) return target
  if (!existsSync(join(source, file))) throw new Error(`${page}: the link ${target} leads to no file`)
  return `${repository}/tree/${required('DOCS_REVISION')}/${file}${anchor}`
}

// breakable lets a line end inside of a long path, as a column of a table would otherwise be as wide as its longest name.
function breakable(md) {
  const code = md.renderer.rules.code_inline
  md.renderer.rules.code_inline = (...args) => code(...args).replace(/[./,=](?=[^<>\s]*[^<>]*<\/code>)/g, '$&<wbr>')
}

function required(name) {
  const value = process.env[name]
  if (!value) throw new Error(`${name} is not set: build the site with make docs-site`)
  return value
}
