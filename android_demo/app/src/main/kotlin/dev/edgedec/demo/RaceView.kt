package dev.edgedec.demo

import android.view.View
import android.widget.ProgressBar
import android.widget.TextView

/** Both sides of a race, and how it ended. */
class RaceView(root: View, private val phrases: Phrases) {
    private val whole: View = root.findViewById(R.id.race)
    private val verdict: TextView = root.findViewById(R.id.verdict)
    private val plain = Lane(root.findViewById(R.id.plain), R.string.lane_plain)
    private val drafted = Lane(root.findViewById(R.id.drafted), R.string.lane_drafted)

    fun show(screen: Screen) {
        val race = screen.race
        whole.visibility = if (race == null) View.GONE else View.VISIBLE
        if (race == null) return
        plain.show(race.plain, race.length)
        drafted.show(race.drafted, race.length)
        verdict.change(phrases.verdict(race, screen.decoding, screen.about?.exact == true))
    }

    private inner class Lane(view: View, name: Int) {
        private val rate: TextView = view.findViewById(R.id.lane_rate)
        private val bar: ProgressBar = view.findViewById(R.id.lane_bar)
        private val text = TextPane(view.findViewById(R.id.lane_text), view.findViewById(R.id.lane_scroll))

        init {
            view.findViewById<TextView>(R.id.lane_name).setText(name)
        }

        fun show(answer: Answer?, length: Int) {
            rate.change(phrases.lane(answer, length))
            bar.max = length
            bar.progress = answer?.passage?.tokens ?: 0
            text.show(answer?.styled().orEmpty())
        }
    }
}

/** Sets a text if it is another one: TalkBack speaks, and the view is laid out, at each change. */
fun TextView.change(words: String) {
    if (text.toString() != words) text = words
}
