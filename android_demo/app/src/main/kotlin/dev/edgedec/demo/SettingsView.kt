package dev.edgedec.demo

import android.app.AlertDialog
import android.text.Editable
import android.text.TextWatcher
import android.view.View
import android.widget.AdapterView
import android.widget.Button
import android.widget.EditText
import android.widget.SeekBar
import android.widget.Spinner
import android.widget.TextView
import dev.edgedec.core.Drafter

/** The settings, over everything else; each change is kept at once. */
class SettingsView(
    root: View,
    private val phrases: Phrases,
    private val presenter: Presenter,
    private val refresh: () -> Unit,
) {
    private val whole: View = root.findViewById(R.id.settings)
    private val drafter: Spinner = root.findViewById(R.id.drafter)
    private val temperature = Slider(R.id.temperature, R.id.temperature_label, 0..TEMPERATURES) { value ->
        if (value == 0) text(R.string.temperature_greedy) else text(R.string.temperature_label, value / TENTHS)
    }
    private val length = Slider(R.id.length, R.id.length_label, 1..LENGTHS) { text(R.string.length_label, it * LENGTH_STEP) }
    private val threads = Slider(R.id.threads, R.id.threads_label, 0..Runtime.getRuntime().availableProcessors()) {
        if (it == 0) text(R.string.threads_auto) else text(R.string.threads_label, it)
    }
    private val seed: EditText = root.findViewById(R.id.seed)
    private val facts: TextView = root.findViewById(R.id.bundle_facts)
    private val remove: Button = root.findViewById(R.id.remove)
    private var filling = false

    init {
        root.findViewById<View>(R.id.settings_done).setOnClickListener { close() }
        drafter.onItemSelectedListener = object : AdapterView.OnItemSelectedListener {
            override fun onItemSelected(parent: AdapterView<*>?, view: View?, position: Int, id: Long) = keep()
            override fun onNothingSelected(parent: AdapterView<*>?) = Unit
        }
        seed.addTextChangedListener(object : TextWatcher {
            override fun beforeTextChanged(text: CharSequence?, start: Int, count: Int, after: Int) = Unit
            override fun onTextChanged(text: CharSequence?, start: Int, before: Int, count: Int) = Unit
            override fun afterTextChanged(text: Editable?) = keep()
        })
        remove.setOnClickListener { ask() }
    }

    fun show(screen: Screen) {
        val open = screen.settingsOpen
        if (open && whole.visibility != View.VISIBLE) fill(screen.settings)
        whole.visibility = if (open) View.VISIBLE else View.GONE
        val bundle = screen.chosen
        facts.visibility = if (bundle == null) View.GONE else View.VISIBLE
        if (bundle != null) facts.change(phrases.bundle(bundle))
        remove.visibility = if (bundle == null || bundle.demo) View.GONE else View.VISIBLE
        remove.isEnabled = !screen.decoding
    }

    private fun fill(settings: Settings) {
        filling = true
        drafter.setSelection(settings.drafter.ordinal)
        temperature.value = Math.round(settings.temperature * TENTHS).toInt()
        length.value = settings.length / LENGTH_STEP
        threads.value = settings.threads ?: 0
        seed.setText(settings.seed?.toString().orEmpty())
        filling = false
    }

    private fun keep() {
        if (filling || whole.visibility != View.VISIBLE) return
        presenter.change(
            Settings(
                drafter = Drafter.values()[drafter.selectedItemPosition],
                temperature = temperature.value / TENTHS,
                seed = seed.text.toString().toLongOrNull(),
                length = length.value * LENGTH_STEP,
                threads = threads.value.takeIf { it > 0 },
            ),
        )
    }

    private fun ask() {
        val bundle = presenter.screen.chosen ?: return
        AlertDialog.Builder(whole.context)
            .setMessage(text(R.string.remove_question, bundle.name))
            .setNegativeButton(R.string.cancel, null)
            .setPositiveButton(R.string.remove) { _, _ ->
                presenter.remove()
                refresh()
            }
            .show()
    }

    private fun close() {
        presenter.showSettings(false)
        refresh()
    }

    private fun text(id: Int, vararg values: Any): String = whole.resources.getString(id, *values)

    /** A bar with a label that says its value. */
    private inner class Slider(bar: Int, label: Int, range: IntRange, private val say: (Int) -> String) : SeekBar.OnSeekBarChangeListener {
        private val bar: SeekBar = whole.findViewById(bar)
        private val label: TextView = whole.findViewById(label)
        var value: Int
            get() = bar.progress
            set(value) {
                bar.progress = value
                onProgressChanged(bar, bar.progress, false)
            }

        init {
            this.bar.min = range.first
            this.bar.max = range.last
            this.bar.setOnSeekBarChangeListener(this)
        }

        override fun onProgressChanged(bar: SeekBar, progress: Int, fromUser: Boolean) {
            label.change(say(progress))
            bar.contentDescription = label.text
            keep()
        }

        override fun onStartTrackingTouch(bar: SeekBar) = Unit
        override fun onStopTrackingTouch(bar: SeekBar) = Unit
    }

    private companion object {
        const val TEMPERATURES = 20
        const val TENTHS = 10.0
        const val LENGTH_STEP = 16
        const val LENGTHS = 64
    }
}
