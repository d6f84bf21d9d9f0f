package dev.edgedec.demo

import android.graphics.Typeface
import android.view.View
import android.widget.AdapterView
import android.widget.ArrayAdapter
import android.widget.Button
import android.widget.EditText
import android.widget.ProgressBar
import android.widget.Spinner
import android.widget.Switch
import android.widget.TextView

/** Puts the screen's state into views, and what is touched to the presenter. */
class MainView(private val root: View, private val presenter: Presenter, private val pickFolder: () -> Unit) {
    private val phrases = Phrases(root.context)
    private val bundles: Spinner = root.findViewById(R.id.bundles)
    private val status: TextView = root.findViewById(R.id.status)
    private val copying: View = root.findViewById(R.id.copying)
    private val copyingText: TextView = root.findViewById(R.id.copying_text)
    private val copyingBar: ProgressBar = root.findViewById(R.id.copying_bar)
    private val import: View = root.findViewById(R.id.import_bundle)
    private val error: TextView = root.findViewById(R.id.error)
    private val scroll: View = root.findViewById(R.id.text_scroll)
    private val text: TextView = root.findViewById(R.id.text)
    private val pane = TextPane(text, root.findViewById(R.id.text_scroll))
    private val figures: TextView = root.findViewById(R.id.figures)
    private val prompt: EditText = root.findViewById(R.id.prompt)
    private val chat: Switch = root.findViewById(R.id.chat)
    private val clear: View = root.findViewById(R.id.clear)
    private val race: View = root.findViewById(R.id.race_start)
    private val decode: Button = root.findViewById(R.id.decode)
    private val races = RaceView(root, phrases)
    private val settings = SettingsView(root, phrases, presenter, ::refresh)
    private var listed = listOf<Installed>()

    init {
        on(R.id.import_bundle) { pickFolder() }
        on(R.id.settings_open) { presenter.showSettings(true) }
        on(R.id.copying_cancel) { presenter.cancelImport() }
        on(R.id.clear) { presenter.clear() }
        on(R.id.race_start) { presenter.race(prompt.text.toString()) }
        on(R.id.decode) { if (presenter.screen.decoding) presenter.stop() else decode() }
        chat.setOnCheckedChangeListener { _, on -> presenter.chat(on) }
        bundles.onItemSelectedListener = object : AdapterView.OnItemSelectedListener {
            override fun onItemSelected(parent: AdapterView<*>?, view: View?, position: Int, id: Long) {
                listed.getOrNull(position)?.let { presenter.choose(it) }
            }

            override fun onNothingSelected(parent: AdapterView<*>?) = Unit
        }
        text.hint = root.resources.getString(R.string.text_empty)
        list(emptyList())
    }

    fun show(screen: Screen) {
        if (screen.bundles != listed) list(screen.bundles)
        val chosen = listed.indexOf(screen.chosen)
        if (chosen >= 0 && bundles.selectedItemPosition != chosen) bundles.setSelection(chosen)
        bundles.isEnabled = !screen.decoding && listed.isNotEmpty()
        status.change(phrases.status(screen))
        showCopying(screen.copying)
        error.change(screen.error.orEmpty())
        error.visibility = visible(screen.error != null)
        showText(screen)
        races.show(screen)
        figures.change(phrases.figures(screen))
        showButtons(screen)
        settings.show(screen)
        root.keepScreenOn = screen.decoding
    }

    private fun showCopying(now: Copying?) {
        copying.visibility = visible(now != null)
        import.isEnabled = now == null
        if (now == null) return
        copyingText.change(phrases.copying(now))
        copyingBar.isIndeterminate = now.totalBytes == 0L
        if (now.totalBytes > 0) copyingBar.progress = (now.copiedBytes * copyingBar.max / now.totalBytes).toInt()
    }

    private fun showText(screen: Screen) {
        scroll.visibility = visible(screen.race == null)
        val conversation = screen.turns.lastOrNull()?.chat == true
        val typeface = if (conversation) Typeface.DEFAULT else Typeface.MONOSPACE
        if (text.typeface != typeface) text.typeface = typeface
        val own = if (screen.chat) Typeface.DEFAULT else Typeface.MONOSPACE
        if (prompt.typeface != own) prompt.typeface = own
        pane.show(screen.turns.styled(root.resources.getString(R.string.you)))
    }

    private fun showButtons(screen: Screen) {
        chat.visibility = visible(screen.about?.chat == true)
        // A switch moves its thumb anew whenever it is set.
        if (chat.isChecked != screen.chat) chat.isChecked = screen.chat
        chat.isEnabled = !screen.decoding
        clear.isEnabled = !screen.decoding && (screen.turns.isNotEmpty() || screen.race != null)
        race.isEnabled = screen.idle
        decode.change(root.resources.getString(if (screen.decoding) R.string.stop else R.string.decode))
        decode.isEnabled = screen.idle || screen.decoding
    }

    private fun decode() {
        val asked = prompt.text.toString()
        presenter.decode(asked)
        // In a chat the question is shown with its answer, and the next one is written here.
        if (presenter.screen.chat && presenter.screen.decoding) prompt.text.clear()
    }

    private fun list(now: List<Installed>) {
        listed = now
        val names = if (now.isEmpty()) listOf(root.resources.getString(R.string.bundle_none)) else now.map { it.name }
        val adapter = ArrayAdapter(root.context, android.R.layout.simple_spinner_item, names)
        adapter.setDropDownViewResource(android.R.layout.simple_spinner_dropdown_item)
        bundles.adapter = adapter
    }

    private fun on(id: Int, act: () -> Unit) = root.findViewById<View>(id).setOnClickListener {
        act()
        refresh()
    }

    private fun refresh() = show(presenter.tick())

    private fun visible(yes: Boolean): Int = if (yes) View.VISIBLE else View.GONE
}
