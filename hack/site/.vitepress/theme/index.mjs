// The theme without its fonts: those of the reader's system serve.
import theme from 'vitepress/theme-without-fonts'
import './site.css'

export default theme
